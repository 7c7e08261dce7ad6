"""What a plan says, line by line: for the screen and for a page."""

from typing import Any

from rich.console import Console

from experiments.plan.devices import find
from experiments.plan.worker import HERE
from experiments.report import tables

Record = dict[str, Any]
STEP = (
    "compiled for", "fits", "of", "total", "arguments", "outputs", "temps", "aliased", "forward",
    "FLOPs/step", "bytes/step", "compute ms", "memory ms", "bound by", "compiler's ms", "compiled in s",
)  # fmt: skip
PARTS = ("total", "arguments", "outputs", "temporaries", "aliased")
LONGEST = "trains up to, tokens"


def show_steps(out: Console, record: Record) -> None:
    """A row for each target."""
    out.print(tables.plain(STEP, steps(record), left=("compiled for", "fits", "bound by")))
    out.print(note(record))


def show_longest(out: Console, record: Record) -> None:
    """A row for each variant, a column for each target."""
    out.print(tables.plain(longest_heads(record), longest(record), left=(LONGEST,)))


def note(record: Record) -> str:
    """What the columns of `steps` are."""
    sequences, forward = (record["config"][section]["batch_size"] for section in ("train", "eval"))
    return (
        f"One training step of {sequences} sequences; figures are those of one device. forward: all that an "
        f"evaluation of {forward} sequences takes. fits: each, in {record['share']:.0%} of the memory. "
        "total: arguments, outputs and temporaries, less what is aliased. bytes: the least that cross the "
        "memory, arguments and outputs once and temporaries twice. compute, memory: the least time, by the "
        "device's peak and bandwidth. compiler's: its own estimate, where it gives one; it counts a loop's "
        "body once."
    )


def steps(record: Record) -> list[list[str]]:
    """What a training step takes on each target, in the columns of `STEP`."""
    return [_step(target, answer) for target, answer in record["compiled_for"].items()]


def longest_heads(record: Record) -> list[str]:
    """Of the columns of `longest`."""
    return [LONGEST, *map(title, record["longest"])]


def longest(record: Record) -> list[list[str]]:
    """The longest length of each variant on each target."""
    found = record["longest"]
    names = list(dict.fromkeys(name for by_name in found.values() for name in by_name))
    return [[name, *(length(found[target][name]) for target in found)] for name in names]


def length(found: dict[str, Any]) -> str:
    """The longest that trains, and what is not known of longer ones."""
    if found["beyond"] in found["refused"]:
        return f"{found['length']:,} (longer is not accepted)"
    failed = f" (compiler failed at {min(found['failed']):,})" if found["failed"] else ""
    if found["length"] is None:
        return f"none{failed}"
    return f"{found['length']:,}" + ("" if found["beyond"] else " or more") + failed


def title(target: str) -> str:
    """Of a target, as its maker calls it."""
    return "the CPU here" if target == HERE else find(target).title


def _step(target: str, answer: dict[str, Any]) -> list[str]:
    if "memory" not in answer:
        return [title(target), answer["outcome"], *[""] * (len(STEP) - 2)]
    memory, bounds = answer["memory"]["training_step"], answer["roofline"]
    kept = " (kept)" if answer.get("kept") else ""
    estimate = answer["compiler_estimate"].get("training_step")
    return [
        title(target),
        {True: "yes", False: "no", None: "unknown"}[answer["fits"]],
        tables.in_bytes(answer["capacity"]),
        *map(tables.in_bytes, (memory[part] for part in PARTS)),
        tables.in_bytes(answer["memory"]["forward"]["total"]),
        tables.in_flops(bounds["operations"]),
        tables.in_bytes(bounds["bytes"]),
        f"{1000 * bounds['compute_seconds']:.3g}",
        f"{1000 * bounds['memory_seconds']:.3g}",
        bounds["bound_by"],
        "" if estimate is None else f"{1000 * estimate:.3g}",
        f"{answer['compile_seconds']:.1f}{kept}",
    ]
