"""Write docs/plans.md and its picture from the plans that are kept in results/plans.

    python -m experiments.plan.page

A plan is kept there by copying what `--mode=plan` wrote into runs/plans.
"""

import shlex
from pathlib import Path
from typing import Any

from experiments import files, provenance
from experiments.plan import lines
from experiments.plan.devices import DEVICES
from experiments.report import figures, tables

RESULTS = provenance.ROOT / "results" / "plans"
PAGE = provenance.ROOT / "docs" / "plans.md"
PICTURES = provenance.ROOT / "docs" / "images"
HEAD = """\
# Plans

Written by `python -m experiments.plan.page` from results/plans; do not edit. Everything here was compiled for
devices that were not there, by their own compilers, and run on none of them.
"""


def page(found: list[dict[str, Any]]) -> str:
    """The whole page, a section for each plan, and what is known of the devices."""
    return "\n".join([HEAD, *map(section, found), facts()])


def facts() -> str:
    """What is taken for each device, and by whose word."""
    rows = [
        [
            device.title,
            tables.in_bytes(device.memory),
            f"{device.bandwidth / 1e9:,.0f} GB/s",
            *(f"{device.peak[dtype] / 1e12:,.4g}" for dtype in ("bfloat16", "float32")),
            device.source,
        ]
        for device in DEVICES.values()
    ]
    heads = ["device", "memory", "bandwidth", "bfloat16 TFLOP/s", "float32 TFLOP/s", "source"]
    text = "float32 is multiplied as bfloat16 on a TPU and as TF32 on a GPU, jax's default."
    return "\n\n".join(["## Devices", tables.markdown(heads, rows), text, ""])


def section(record: dict[str, Any]) -> str:
    """The command, what came of it, and where."""
    if "longest" in record:
        table = tables.markdown(lines.longest_heads(record), lines.longest(record))
        text = (
            'The next length that was tried, at most an eighth more, does not fit, unless it says "or more".'
        )
    else:
        table, text = tables.markdown(list(lines.STEP), lines.steps(record)), lines.note(record)
    parts = [f"## {title(record)}", f"    {command(record)}", table, text]
    if "longest" in record:
        parts.append(f"![Longest sequences]({picture(record).relative_to(PAGE.parent)})")
    return "\n\n".join([*parts, f"- {provenance.origin(record['provenance'])}", ""])


def title(record: dict[str, Any]) -> str:
    """Which config, with what changed, and on how many devices or how long."""
    changed = (each.removeprefix("--config.") for each in record["asked"]["overrides"])
    targets = list(record.get("longest") or record["compiled_for"])
    where = f"{len(targets)} devices" if len(targets) > 3 else ", ".join(targets)
    what = "the longest sequence on" if "longest" in record else "a training step on"
    return ", ".join([f"{record['name']}: {what} {where}", *changed])


def picture(record: dict[str, Any]) -> Path:
    """Where that of a plan is."""
    return PICTURES / f"longest-{record['name']}-{record['identity']}.png"


def command(record: dict[str, Any]) -> str:
    """What was asked for, in one line."""
    asked, which = record["asked"], ["--mode=plan"]
    targets = record.get("longest") or record["compiled_for"]
    if "longest" in record:
        several = len(next(iter(targets.values()))) > 1
        which.append("--longest=all" if several else "--longest")
    flags = [f"--config={asked['config']}", *which, f"--target={','.join(targets)}", *asked["overrides"]]
    return shlex.join(["python", "launch.py", *flags])


def kept() -> list[dict[str, Any]]:
    """The records in results/plans."""
    return [files.read_json(path) for path in sorted(RESULTS.glob("*.json"))]


def main() -> None:
    found = kept()
    files.write(PAGE, page(found))
    for record in found:
        if "longest" in record:
            figures.longest(record, picture(record))


if __name__ == "__main__":
    main()
