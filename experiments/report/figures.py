"""Pictures of results, drawn by matplotlib."""

import math
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter

from experiments import files, records
from experiments.model import registry
from experiments.records import Record

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito
BLACK = "#000000"
MARKERS = "os^vDPX"  # one more than colours, so that 42 lines have a look each
PANELS_A_ROW = 3


def results(folder: Path, path: Path) -> None:
    """Learning curves of the runs in `folder`, a panel for each task; time by length from its benchmark."""
    tasks: dict[str, list[tuple[Path, Record]]] = {}
    for at, record in records.find(folder)[0]:
        tasks.setdefault(record["task"]["name"], []).append((at, record))
    timed = folder / "performance.json"
    count = len(tasks) + timed.exists()
    columns = max(1, min(PANELS_A_ROW, count))
    rows = max(1, math.ceil(count / columns))
    size = (5.5 * columns, 4.2 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    panels = iter(axes.flat)
    for _, runs in sorted(tasks.items()):
        _learning_curves(next(panels), runs)
    if timed.exists():
        _time_by_length(next(panels), timed)
    for panel in panels:
        panel.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    literal(figure)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def longest(record: dict[str, Any], path: Path) -> None:
    """The longest sequence of each variant that trains on each target, from a plan's record."""
    count = len(record["longest"])
    figure, axes = plt.subplots(figsize=(max(5.5, 1.1 * count), 4.2), layout="constrained")
    draw_longest(axes, record)
    literal(figure)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_longest(axes: Axes, record: dict[str, Any]) -> None:
    """`longest`, on axes that are there."""
    found = record["longest"]
    for name in dict.fromkeys(name for by_name in found.values() for name in by_name):
        lengths = [by_name[name]["length"] or math.nan for by_name in found.values()]
        axes.plot(range(len(found)), lengths, label=name, linestyle="none", **style(name))
    axes.set_yscale("log", base=2)
    axes.set_xticks(range(len(found)), list(found), rotation=30, ha="right")
    axes.set(ylabel="tokens", title="the longest sequence that trains, compiled for each device")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)


def _learning_curves(axes: Axes, runs: list[tuple[Path, Record]]) -> None:
    """Validation score by step: a line for each seed, one name for all seeds of a run."""
    task = runs[0][1]["task"]
    for at, record in runs:
        name = record["attention"]["text"]
        for number, seed in enumerate(sorted(record["seeds"], key=int)):
            lines = records.read(at / f"seed-{seed}" / "metrics.jsonl")
            course = [line for line in lines if line["split"] == "validation"]
            steps, scores = [line["step"] for line in course], [line[task["primary"]] for line in course]
            (line,) = axes.plot(steps, scores, **style(record["attention"]["name"]))
            line.set(label=None if number else name, linewidth=1.5 / math.sqrt(len(record["seeds"])))
    for name, value in task["baselines"].items():
        axes.axhline(value, color="0.6", linewidth=0.8, linestyle=":")
        where = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
        axes.annotate(name, (1, value), color="0.4", size=8, **where)
    metric = task["primary"].replace("_", " ")
    axes.set(xlabel="training step", ylabel=f"validation {metric}", title=f"{task['name']}: learning curves")
    axes.legend(fontsize=8)


def _time_by_length(axes: Axes, path: Path) -> None:
    cells = [cell for cell in files.read_json(path) if not cell.get("packages")]  # peers: in the table only
    for name in dict.fromkeys(cell["name"] for cell in cells):
        own = [cell for cell in cells if cell["name"] == name and "seconds" in cell["gradient"]]
        lengths, seconds = (
            [cell["length"] for cell in own],
            [cell["gradient"]["seconds"]["median"] for cell in own],
        )
        # No variant's name has a hyphen: what follows one is how it was run.
        (line,) = axes.loglog(lengths, seconds, label=name, **style(name.split("-")[0]))
        line.set_linestyle("-" if all(cell.get("causal", True) for cell in own) else "--")
    axes.set(
        xlabel="length",
        ylabel="seconds, forward and backward",
        title="time by length, batch 1, 8 heads of 64 (dashed: two-sided)",
    )
    axes.legend(fontsize=8)


def literal(figure: Figure) -> None:
    """Take a dollar for a dollar, since names come from records. Numbers at ticks may be formulas."""
    for axes in figure.axes:
        for text in axes.findobj(Text, include_self=False):
            text.set_parse_math(False)  # pyright: ignore[reportAttributeAccessIssue]
        for axis in (axes.xaxis, axes.yaxis):
            named = isinstance(axis.get_major_formatter(), FixedFormatter)
            for text in axis.get_ticklabels(which="both"):
                text.set_parse_math(not named)


def style(name: str) -> dict[str, Any]:
    """The same for a variant in every picture; black for what is not one of ours."""
    known = registry.names()
    return distinct(known.index(name)) if name in known else distinct(-1) | {"color": BLACK}


def distinct(number: int) -> dict[str, Any]:
    """Colour and marker of one of several lines."""
    return {
        "color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 4,
    }  # fmt: skip
