"""The charts of a report: what each is called, what it says in words, and how it is drawn."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from experiments import records
from experiments.records import Record
from experiments.report import by_length, compare, digits, figures, tables

MOST_NAMES = 24  # of runs, in a chart and in its words
FAR = 3  # spans of the scores from which chance is left to the text: it would flatten them


class Chart(NamedTuple):
    """`draw` fills axes that are there; `told` says the same to those who do not see them."""

    title: str
    told: str
    draw: Callable[[Axes], None]
    size: tuple[float, float] = (5.2, 3.6)  # inches


class Cost(NamedTuple):
    """Something that a run takes."""

    title: str
    unit: str
    of: Callable[[Record], float | None]
    shown: Callable[[float], str]


def _planned(record: Record) -> float | None:
    return record["memory"].get("training_step", {}).get("total")


COSTS = (
    Cost("memory", "planned for a training step", _planned, tables.in_bytes),
    Cost("time", "a training step", tables.step_seconds, lambda seconds: f"{1000 * seconds:.4g} ms"),
)


def of_task(group: list[Record], runs: list[tuple[Path, Record]]) -> list[Chart]:
    """Score against memory and against time, and learning curves, of records that stand in one table."""
    own = {id(record) for record in group}
    ran = [(path, record) for path, record in runs if id(record) in own]
    made = [*(quality(group, cost) for cost in COSTS), learning(group[0]["task"], ran)]
    return [chart for chart in made if chart is not None]


def quality(group: list[Record], cost: Cost) -> Chart | None:
    """Score against what a training step takes: a point for each run, its interval, chance as a line."""
    task, metric = group[0]["task"], group[0]["task"]["primary"]
    points = []
    for record in group:
        score, value = compare.interval(list(compare.scores(record, metric).values())), cost.of(record)
        if score["mean"] is not None and value:
            points.append((record, float(value), score))
    if not points:
        return None
    metric_name = metric.replace("_", " ")
    title = f"{task['name']}: {metric_name} against {cost.title}"
    chance = (task["chance"] or {}).get(metric)

    def draw(axes: Axes) -> None:
        for record, value, score in points:
            look = figures.style(record["attention"]["name"])
            half = score["half_width"] or 0
            axes.errorbar(value, score["mean"], yerr=half, capsize=2, linestyle="none", **look)
            if len(points) <= MOST_NAMES:
                place = {"xytext": (5, 4), "textcoords": "offset points", "size": 8}
                axes.annotate(record["attention"]["text"], (value, score["mean"]), **place)
        low, high = axes.get_ylim()
        if chance is not None and abs(chance - (low + high) / 2) < FAR * (high - low):
            axes.axhline(chance, color="0.5", linestyle=":")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: cost.shown(value))
        axes.margins(x=0.2)
        axes.set(xlabel=cost.unit, ylabel=f"test {metric_name}", title=title)

    told = "; ".join(
        f"{record['attention']['text']} {digits.text(score)} at {cost.shown(value)}"
        for record, value, score in points[:MOST_NAMES]
    )
    return Chart(title, told, draw)


def learning(task: dict[str, Any], runs: list[tuple[Path, Record]]) -> Chart | None:
    """Validation score by step: the mean of the seeds, and its 95% interval as a band."""
    metric = task["primary"]
    title = f"{task['name']}: validation {metric.replace('_', ' ')} while training"
    found = [(record, curve) for path, record in runs if (curve := _curve(path, record, metric))]
    if not found:
        return None

    def draw(axes: Axes) -> None:
        for record, curve in found:
            steps, means = list(curve), [each["mean"] for each in curve.values()]
            halves = [each["half_width"] or 0 for each in curve.values()]
            look = figures.style(record["attention"]["name"])
            axes.plot(steps, means, label=record["attention"]["text"], linewidth=1.4, **look)
            low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
            if any(halves):
                axes.fill_between(steps, low, high, color=look["color"], alpha=0.18, linewidth=0)
        axes.set(xlabel="training step", ylabel=metric.replace("_", " "), title=title)
        if len(found) <= MOST_NAMES:
            axes.legend()

    ends = [
        f"{record['attention']['text']} {curve[max(curve)]['mean']:.4g} at step {max(curve)}"
        for record, curve in found[:MOST_NAMES]
    ]
    return Chart(title, f"Mean of the seeds, 95% Student-t interval as a band. {'; '.join(ends)}", draw)


def _curve(path: Path, record: Record, metric: str) -> dict[int, dict[str, Any]]:
    """An `interval` of validation scores by step, at the steps that all seeds have."""
    courses = [course for seed in record["seeds"] if (course := _course(path, seed, metric))]
    steps = sorted(set.intersection(*map(set, courses))) if courses else []
    return {step: compare.interval([course[step] for course in courses]) for step in steps}


def _course(path: Path, seed: str, metric: str) -> dict[int, float]:
    """Validation score by step, of a seed; {} if its lines cannot be read."""
    try:
        lines = records.read(path / f"seed-{seed}" / "metrics.jsonl")
    except (OSError, ValueError):
        return {}
    scores = {line["step"]: line.get(metric) for line in lines if line["split"] == "validation"}
    return {step: score for step, score in scores.items() if isinstance(score, int | float)}


def growth(group: list[Record]) -> list[Chart]:
    """Time and temporaries by length, both axes logarithmic: the exponent is the slope."""
    made = (_growth(quantity, rows) for quantity, rows in by_length.series(group).items())
    return [chart for chart in made if chart is not None]


def _growth(quantity: str, rows: dict[str, dict[int, float]]) -> Chart | None:
    title = f"{quantity}, by length"
    known = {f"{name} {by_length.grows(values)}".strip(): values for name, values in rows.items() if values}
    if not known:
        return None

    def draw(axes: Axes) -> None:
        for label, values in known.items():
            look = figures.style(label.split(" ")[0].partition("(")[0])
            axes.plot(list(values), list(values.values()), label=label, **look)
        axes.set(yscale="log", xlabel="tokens", ylabel=quantity, title=title)
        axes.set_xscale("log", base=2)
        axes.legend()

    told = "; ".join(f"{label}: {v[max(v)]:.4g} at {max(v):,} tokens" for label, v in known.items())
    return Chart(title, told, draw)


def longest(plan: dict[str, Any]) -> Chart:
    """The longest sequence that trains, by variant and device."""
    title = f"{plan['name']}: the longest sequence that trains"

    def draw(axes: Axes) -> None:
        figures.draw_longest(axes, plan)
        axes.set_title(title)

    told = "; ".join(
        f"{target}: " + ", ".join(f"{name} {_tokens(answer)}" for name, answer in answers.items())
        for target, answers in plan["longest"].items()
    )
    return Chart(title, told, draw)


def _tokens(answer: dict[str, Any]) -> str:
    length = answer["length"]
    return "none" if length is None or math.isnan(length) else f"{length:,}"
