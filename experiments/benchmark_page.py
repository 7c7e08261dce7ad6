"""docs/performance.md from measured cells."""

import math
from collections.abc import Callable
from typing import Any

from experiments import growth, provenance, tables

Cell = dict[str, Any]
FITTED_FROM = 4096  # shorter lengths are ruled by what does not grow


def page(cells: list[Cell], baseline: str) -> str:
    """The whole page. `baseline` is the name that times are compared with."""
    parts = [
        ("Forward and backward, milliseconds", _milliseconds, "gradient"),
        ("Forward, milliseconds", _milliseconds, "forward"),
        ("Temporaries of forward and backward, MiB", _mebibytes, "gradient"),
        ("Temporaries of forward, MiB", _mebibytes, "forward"),
    ]
    sections = [f"## {title}\n\n{_table(cells, value, part)}" for title, value, part in parts]
    sections.append(f"## Speed against `{baseline}`\n\n{_ratios(cells, baseline)}")
    return "\n\n".join([_head(cells), *sections]) + "\n"


def _head(cells: list[Cell]) -> str:
    origins = {provenance.origin(cell["provenance"]) for cell in cells if "provenance" in cell}
    return "\n".join(
        [
            "# Performance",
            "",
            "Written by `python -m experiments.benchmark` from `results/performance.json`; do not edit.",
            "",
            "Causal self-attention, batch 1, 8 heads of width 64, float32, every variant with its default",
            "hyperparameters; one process for each cell; median of several warm calls. Backward includes the",
            "forward; quartiles are in the JSON. Temporaries are what the compiler plans beside",
            "arguments and outputs; neither part is timed unless both fit. Trust ratios, not digits. The",
            f"exponent is fitted over lengths from {FITTED_FROM} on; n^1 is linear.",
            "",
            *(f"- {each}" for each in sorted(origins)),
        ]
    )


def _names(cells: list[Cell]) -> list[str]:
    return list(dict.fromkeys(cell["name"] for cell in cells))


def _milliseconds(part: dict[str, Any]) -> float | None:
    return part["seconds"]["median"] * 1e3 if "seconds" in part else None


def _mebibytes(part: dict[str, Any]) -> float | None:
    return part["memory"]["temporaries"] / 2**20 if "memory" in part else None


def _table(cells: list[Cell], value: Callable[[dict[str, Any]], float | None], part: str) -> str:
    lengths = sorted({cell["length"] for cell in cells})
    rows = []
    for name in _names(cells):
        found = {cell["length"]: cell[part] for cell in cells if cell["name"] == name}
        shown = [_shown(value(found[n]), found[n]) if n in found else "" for n in lengths]
        fitted = {n: value(found[n]) for n in lengths if n in found and n >= FITTED_FROM}
        fitted = {n: v for n, v in fitted.items() if v}
        slope = growth.exponent(list(fitted), [v for v in fitted.values() if v])
        rows.append([f"`{name}`", *shown, "" if slope is None else f"n^{slope:.2f} ({len(fitted)} points)"])
    return tables.markdown(["", *(str(n) for n in lengths), "grows as"], rows)


def _shown(value: float | None, part: dict[str, Any]) -> str:
    if value is None:
        return part["outcome"]
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{min(digits, 2)}f}"


def _ratios(cells: list[Cell], baseline: str) -> str:
    """How many times faster than the baseline, forward and backward."""
    times = {(cell["name"], cell["length"]): _milliseconds(cell["gradient"]) for cell in cells}
    lengths = sorted({cell["length"] for cell in cells})
    rows = []
    for name in _names(cells):
        row = []
        for length in lengths:
            own, other = times.get((name, length)), times.get((baseline, length))
            row.append(f"{other / own:.2f}x" if own and other else "")
        rows.append([f"`{name}`", *row])
    return tables.markdown(["forward and backward", *(str(n) for n in lengths)], rows)
