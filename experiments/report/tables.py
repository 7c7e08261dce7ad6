"""The two tables: what a config would be (dry run), and a run beside every comparable one."""

import collections
import itertools
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.records import Record
from experiments.report import compare

PLAIN: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0)}
WIDE = 140  # characters from which one table holds all
LEFT = ("run", "attention", "remarks")
COSTS = ("step ms", "tokens/s", "compile s", "temps", "in use", "FLOPs/step", "params")


def plan(out: Console, record: Record, schedule: list[tuple[int, float]]) -> None:
    """Model, cost and schedule of a record that was not run."""
    arrays = Table(**PLAIN)
    for column, justify in (("parameters", "left"), ("shape", "left"), ("dtype", "left"), ("size", "right")):
        arrays.add_column(column, justify=justify)  # pyright: ignore[reportArgumentType]
    for name, array in record["parameters"]["by_array"].items():
        shape = " x ".join(map(str, array["shape"]))
        arrays.add_row(escape(name), shape, array["dtype"], f"{array['size']:,}")
    arrays.add_section()
    arrays.add_row("total", "", "", f"{record['parameters']['total']:,}")
    out.print(arrays)
    cost = Table(**PLAIN)
    parts = ("arguments", "outputs", "temporaries", "aliased", "total")
    for column in ("compiled memory", *parts):
        cost.add_column(column, justify="left" if column == "compiled memory" else "right")
    train, variant = record["config"]["train"], record["attention"]
    at_once = {"forward": record["config"]["eval"]["batch_size"], "training_step": train["batch_size"]}
    for program, sequences in at_once.items():
        memory = record["memory"][program]
        head = f"{program.replace('_', ' ')}, {sequences} sequence{'s' * (sequences > 1)}"
        cost.add_row(head, *(in_bytes(memory[part]) for part in parts))
    out.print(cost)
    share = record["flops"]["attention"] / record["flops"]["training"]
    out.print(f"FLOPs of one training step: {in_flops(_step_flops(record))}, {share:.0%} of it attention")
    out.print(f"attention: {escape(variant['text'])}, one layer reaches {variant['reach']} tokens back")
    rates = ", ".join(f"{rate:g}" for rate in record["config"]["optimizer"]["learning_rate_grid"])
    points = ", ".join(f"{rate:.2g} at step {at}" for at, rate in schedule)
    rate = f"the one of {rates} that validates best" if rates else points
    flops = compare.asked_for(record)["train.flops"]
    paid = "" if flops is None else f", which {flops:.4g} FLOPs pay for"
    out.print(f"{train['steps']} steps of {train['batch_size']} sequences{paid}; learning rate {rate}")


def _step_flops(record: Record) -> int:
    return record["config"]["train"]["batch_size"] * record["flops"]["training"]


def budget(record: Record) -> str:
    """What each row of a table of comparable records was given, by one of them."""
    asked = compare.asked_for(record)
    of, flops = f"of {asked['train.batch_size']} sequences", asked["train.flops"]
    steps = f"{asked['train.steps']} steps {of}"
    return f"at most {steps if flops is None else f'as many steps {of} as {flops:.4g} FLOPs pay for'}"


def results(out: Console, this: Record, others: list[Record], complaints: list[str]) -> None:
    """This record beside every comparable one, best first; the others named with the reason."""
    rows, refused = compare.table(this, others)
    task, tested = this["task"], any(row["claim"] and not row["claim"]["untested"] for row in rows)
    names = _names([row["record"] for row in rows])
    marks = ["> " if row["this"] else "  " for row in rows]
    lines = [
        {"run": mark + name} | _quality(row, task, tested) | costs(row["record"])
        for mark, name, row in zip(marks, names, rows, strict=True)
    ]
    last = ["remarks"]
    quality = ["run", "attention", task["primary"], "± 95%", "n", *at_lengths(this), "p (Holm)"]
    narrow = [[*quality, *last], ["run", *COSTS[:3]], ["run", *COSTS[3:]]]
    groups = [[*quality, *COSTS, *last]] if out.width >= WIDE else narrow
    lines += [
        {"run": f"  {name}", task["primary"]: f"{value:.4f}"} for name, value in simple_scores(task).items()
    ]
    out.print(f"{task['name']}, length {task['length']}: test {task['primary']}, {task['better']} is better")
    for group in groups:
        out.print(_table(lines, group, marked=[row["this"] for row in rows]))
    untested: dict[str, list[str]] = {}
    for name, row in zip(names, rows, strict=True):
        if row["claim"] and row["claim"]["untested"]:
            untested.setdefault(row["claim"]["untested"], []).append(name)
    for line in [*by_seed(this), *_footnotes(this, untested, refused, complaints)]:
        out.print(line, markup=False)


def _table(lines: list[dict[str, str]], columns: list[str], marked: list[bool]) -> Table:
    """The columns that any line fills, and the lines that fill more than their name; `marked` ones bold."""
    table = Table(**PLAIN)
    used = [column for column in columns if any(line.get(column) for line in lines)]
    for column in used:
        table.add_column(column, justify="left" if column in LEFT else "right", overflow="fold")
    for line, mark in itertools.zip_longest(lines, marked):
        if any(line.get(column) for column in used[1:]):
            style = "dim" if mark is None else "bold" if mark else None
            table.add_row(*(escape(line.get(column, "")) for column in used), style=style)
    return table


def plain(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> Table:
    """A table for the screen; columns named in `left` are aligned there."""
    table = Table(**PLAIN)
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def in_bytes(count: float | None) -> str:
    """As B, KiB, MiB, GiB or TiB."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def in_flops(count: float) -> str:
    """With a decimal prefix."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000:
            return f"{count:.3g} {unit}".strip()
        count /= 1000
    return f"{count:.3g} P"


def score(interval: dict[str, Any], failed: int, outcome: str) -> str:
    """Mean, half-width, number of seeds and failures in one phrase; the outcome where there is no mean."""
    if interval["mean"] is None:
        return outcome
    half = "" if interval["half_width"] is None else f" ± {interval['half_width']:.2g}"
    count = f"n={interval['n']}" + (f", {failed} failed" if failed else "")
    return f"{interval['mean']:.4f}{half} ({count})"


def _names(found: list[Record]) -> list[str]:
    """Names of the runs; with their identity where a name alone is not enough."""
    counts = collections.Counter(record["name"] for record in found)
    return [r["name"] if counts[r["name"]] == 1 else f"{r['name']}-{r['identity']}" for r in found]


def _quality(row: dict[str, Any], task: dict[str, Any], tested: bool) -> dict[str, str]:
    record, score, metric = row["record"], row["score"], task["primary"]
    cells = {"attention": record["attention"]["text"], "remarks": "; ".join(row["labels"])}
    cells[metric] = compare.result(record) if score["mean"] is None else f"{score['mean']:.4f}"
    cells["± 95%"] = "" if score["half_width"] is None else f"{score['half_width']:.2g}"
    cells["n"] = str(score["n"]) + (f" ({row['failed']} failed)" if row["failed"] else "")
    cells |= at_lengths(record)
    if tested and (claim := row["claim"]):
        cells["p (Holm)"] = "not tested" if claim["untested"] else f"{claim['p']:.2g}"
    return cells


def costs(record: Record) -> dict[str, str]:
    """What a run took, by COSTS: of one training step median and quartiles; "-" for what is not known."""
    speed, memory = record["speed"].get("training_step"), record["memory"]
    compiled = record["speed"].get("compile_seconds", {}).get("training_step")
    cached = "training_step" in record["speed"].get("cached", ())
    values = (
        "{median:.4g} ({low:.3g}-{high:.3g})".format_map({k: 1000 * v for k, v in speed.items()})
        if speed
        else "-",
        f"{record['speed']['tokens_per_second']:,.0f}" if speed else "-",
        "-" if compiled is None else "cached" if cached else f"{compiled:.3g}",
        in_bytes(memory.get("training_step", {}).get("temporaries")),
        in_bytes(memory.get("measured", {}).get("training_step", {}).get("bytes")),
        in_flops(_step_flops(record)),
        f"{record['parameters']['total']:,}",
    )
    return dict(zip(COSTS, values, strict=True))


def cost_numbers(record: Record) -> dict[str, float | None]:
    """The numbers behind `costs`, by COSTS: seconds, tokens a second, bytes, operations."""
    speed, memory = record["speed"], record["memory"]
    values = (
        speed.get("training_step", {}).get("median"),
        speed.get("tokens_per_second"),
        speed.get("compile_seconds", {}).get("training_step"),
        memory.get("training_step", {}).get("temporaries"),
        memory.get("measured", {}).get("training_step", {}).get("bytes"),
        _step_flops(record),
        record["parameters"]["total"],
    )
    return dict(zip(COSTS, values, strict=True))


def at_lengths(record: Record) -> dict[str, str]:
    """Test score at each length beside the task's own, by the column's name; "-" for what is not known."""
    task, missing = record["task"], record.get("not_evaluated", {})
    cells = {}
    for length in (n for n in task["eval_lengths"] if n != task["length"]):
        found = compare.interval(list(compare.scores(record, task["primary"], length).values()))
        reason = missing.get(str(length), "-").partition(":")[0]
        text = score(found, len(compare.failures(record)), reason)
        cells[f"at {length}"] = ", ".join([text, *compare.at_chance(record, length)])
    return cells


def step_seconds(record: Record) -> float | None:
    """The median of a training step, if it was measured."""
    return record["speed"].get("training_step", {}).get("median")


def by_seed(record: Record) -> list[str]:
    """A line with the test score of each seed, or how it ended, if there are several."""
    metric = record["task"]["primary"]
    entries = sorted(record["seeds"].items(), key=lambda item: int(item[0]))
    shown = [f"{s}: {e['test'][metric]:.4f}" if "test" in e else f"{s}: {e['outcome']}" for s, e in entries]
    return [f"{record['name']}, by seed: {', '.join(shown)}"] if len(shown) > 1 else []


def simple_scores(task: dict[str, Any]) -> dict[str, float]:
    """Chance and the task's baselines, in its primary metric."""
    chance = (task["chance"] or {}).get(task["primary"])
    return ({} if chance is None else {"chance": chance}) | task["baselines"]


def _footnotes(
    this: Record, untested: dict[str, list[str]], refused: list[str], complaints: list[str]
) -> list[str]:
    method = this["memory"].get("measured", {}).get("training_step", {}).get("method")
    lines = [f"In use while training: {method}."] if method else []
    lines += [f"not tested: {', '.join(names)}: {reason}" for reason, names in untested.items()]
    lines += [f"not comparable: {line}" for line in refused]
    lines += [f"not readable: {line}" for line in complaints]
    return lines
