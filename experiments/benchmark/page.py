"""docs/performance.md from measured cells."""

import math
from collections.abc import Callable
from typing import Any

from experiments.benchmark import peers, ratios
from experiments.report import growth, tables

Cell = dict[str, Any]
FITTED_FROM = 4096  # shorter lengths are ruled by what does not grow
HEAD = f"""\
# Performance

Written by `python -m experiments.benchmark` from `results/performance.json`; do not edit.

Self-attention, causal unless listed as two-sided, batch 1, 8 heads of width 64, float32, every variant with
its default hyperparameters; one process for each cell; median of several warm calls, each with fresh random
inputs. Backward is by query, key and value, and includes the forward; quartiles are in the JSON. Temporaries
are what the compiler plans beside arguments and outputs; neither part is timed unless both fit. Trust ratios,
not digits. The exponent is fitted over lengths from {FITTED_FROM} on; n^1 is linear.

Peers are other libraries (`{peers.INSTALL}`), on as many threads as jax has cores, with the
same numbers in the order of axes that each takes. Torch has no compiler to ask for memory: of its peers the
growth of the resident set is measured, outputs included, which is not what the compiler plans.
"""


def page(cells: list[Cell], baseline: str = peers.BASELINE) -> str:
    """The whole page. `baseline` is the name that times of all variants are compared with."""
    jax_cells = [cell for cell in cells if not cell.get("packages")]
    torch_cells = [cell for cell in cells if cell.get("packages")]
    parts = [
        ("Forward and backward, milliseconds", _milliseconds, "gradient", cells),
        ("Forward, milliseconds", _milliseconds, "forward", cells),
        ("Temporaries of forward and backward, MiB", _mebibytes, "gradient", jax_cells),
        ("Temporaries of forward, MiB", _mebibytes, "forward", jax_cells),
        ("Growth of the resident set, forward and backward, MiB", _resident, "gradient", torch_cells),
        ("Growth of the resident set, forward, MiB", _resident, "forward", torch_cells),
    ]
    shown = [f"## {title}\n\n{_table(own, value, part)}" for title, value, part, own in parts if own]
    shown.append(f"## Speed against `{baseline}`\n\n{_ratios(jax_cells, baseline)}")
    return "\n\n".join([_head(cells), *ratios.sections(cells), *shown]) + "\n"


def _head(cells: list[Cell]) -> str:
    lines = [f"- {each}" for each in ratios.provenance_lines(cells)]
    seeing_all = _names([cell for cell in cells if not cell.get("causal", True)])
    if seeing_all:
        lines.append(f"- two-sided, where all others are causal: {', '.join(f'`{x}`' for x in seeing_all)}")
    return "\n".join([HEAD, *lines])


def _names(cells: list[Cell]) -> list[str]:
    return list(dict.fromkeys(cell["name"] for cell in cells))


def _milliseconds(part: dict[str, Any]) -> float | None:
    return part["seconds"]["median"] * 1e3 if "seconds" in part else None


def _mebibytes(part: dict[str, Any]) -> float | None:
    return part["memory"]["temporaries"] / 2**20 if "memory" in part else None


def _resident(part: dict[str, Any]) -> float | None:
    grown = part.get("resident", {}).get("bytes")
    return None if grown is None else grown / 2**20


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
        return part["outcome"] if part["outcome"] != "measured" else "-"
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
