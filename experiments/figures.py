"""Pictures of results, drawn by matplotlib."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import attention
from experiments import files, records

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # Okabe and Ito
MARKERS = "os^vDPX"


def results(folder: Path, path: Path) -> None:
    """Learning curves of the runs on `bytes` in `folder`, and time by length from its performance.json."""
    timed = (folder / "performance.json").exists()
    figure, axes = plt.subplots(
        1, 1 + timed, figsize=(5.5 * (1 + timed), 4.2), layout="constrained", squeeze=False
    )
    _learning_curves(axes[0, 0], folder)
    if timed:
        _time_by_length(axes[0, 1], folder / "performance.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _learning_curves(axes: Axes, folder: Path) -> None:
    runs = [(at, record) for at, record in records.find(folder)[0] if record["task"]["name"] == "bytes"]
    for at, record in runs:
        seed = next(iter(record["seeds"]), None)
        lines = [
            line
            for line in records.read(at / f"seed-{seed}" / "metrics.jsonl")
            if line["split"] == "validation"
        ]
        steps, bits = [line["step"] for line in lines], [line["bits_per_byte"] for line in lines]
        axes.plot(steps, bits, label=record["attention"]["text"], **_style(record["attention"]["name"]))
    for name, value in (runs[0][1]["task"]["baselines"] if runs else {}).items():
        axes.axhline(value, color="0.6", linewidth=0.8, linestyle=":")
        axes.annotate(
            name, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.4", size=8
        )
    axes.set(xlabel="training step", ylabel="validation bits per byte", title="bytes: learning curves")
    axes.legend(fontsize=8)


def _time_by_length(axes: Axes, path: Path) -> None:
    cells = files.read_json(path)
    for name in dict.fromkeys(cell["name"] for cell in cells):
        own = [cell for cell in cells if cell["name"] == name and "seconds" in cell["gradient"]]
        lengths, seconds = (
            [cell["length"] for cell in own],
            [cell["gradient"]["seconds"]["median"] for cell in own],
        )
        axes.loglog(lengths, seconds, label=name, **_style(name))
    axes.set(
        xlabel="length",
        ylabel="seconds, forward and backward",
        title="time by length, batch 1, 8 heads of 64",
    )
    axes.legend(fontsize=8)


def _style(name: str) -> dict[str, Any]:
    """The same for a variant in every picture; black for what is not one of ours."""
    known = attention.names()
    index = known.index(name) if name in known else -1
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "markersize": 4}
