"""Time and memory of every variant by length, a process for each cell, and the page that shows them.

    python -m experiments.benchmark                        # measure what is missing, write the page
    python -m experiments.benchmark --lengths 1024 4096    # these lengths only
    python -m experiments.benchmark --fresh                # measure everything again

A cell is the forward pass, and the gradient with respect to query, key and value, of causal self-attention
over float32 arrays (batch 1, 8 heads of width 64). Compiled, warm, inputs passed as arguments, every output
waited for: the median of several calls. What the compiler says needs more than 80% of the free memory is not
run. Cells are kept in results/performance.json as they are finished, so an interrupted run continues.
"""

import argparse
import functools
import itertools
import json
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

import attention
from experiments import benchmark_page, files, measure, provenance, records

RESULTS = provenance.ROOT / "results" / "performance.json"
PAGE = provenance.ROOT / "docs" / "performance.md"
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
BASELINE = "jax.nn.dot_product_attention"
SHAPE = {"batch": 1, "num_heads": 8, "head_dim": 64}
CALLS, LEAST_CALLS, SECONDS = 9, 3, 10.0  # as many calls as fit into so many seconds, within these bounds


def contenders() -> tuple[str, ...]:
    return (*attention.names(), BASELINE)


def attend(name: str, query, key, value):
    """Causal attention by a registered variant with its default hyperparameters, or by the baseline."""
    if name == BASELINE:
        return jax.nn.dot_product_attention(query, key, value, is_causal=True, implementation="xla")
    variant = attention.make(name)
    key = None if variant.capabilities.shared_key else key
    return variant(query, key, value, attention.Mask(causal=True))


def gradient(name: str, query, key, value, cotangent):
    """Gradient of the output's product with `cotangent`, with respect to all three."""
    return jax.vjp(functools.partial(attend, name), query, key, value)[1](cotangent)


PARTS = {"forward": (attend, 3), "gradient": (gradient, 4)}  # and how many arrays each takes


def measure_cell(name: str, length: int) -> dict[str, Any]:
    """Time, compile time and compiled memory of forward and gradient, in this process.

    Neither is timed unless both fit: what has no gradient trains nothing.
    """
    cell: dict[str, Any] = {
        "name": name,
        "length": length,
        "attention_sha256": provenance.code_sha256(("attention",)),
        "provenance": provenance.gather(),
    }
    compiled = {}
    for part, (function, count) in PARTS.items():
        start = time.perf_counter()
        compiled[part] = jax.jit(functools.partial(function, name)).lower(*fresh(length, count, 0)).compile()
        seconds = time.perf_counter() - start
        cell[part] = {"compile_seconds": seconds, "memory": measure.compiled_memory(compiled[part])}
    most = max(cell[part]["memory"]["total"] for part in PARTS)
    if reason := measure.shortage(most, jax.devices()[0]):
        for part in PARTS:
            cell[part] |= {"outcome": records.OUT_OF_MEMORY_COMPILED, "reason": reason}
        return cell
    for part, (_, count) in PARTS.items():
        cell[part] |= {"outcome": "measured", "seconds": _timed(compiled[part], length, count)}
    return cell


def fresh(length: int, count: int, draw: int) -> list[jax.Array]:
    """`count` standard normal arrays (1 T 8 64), others for each draw."""
    shape = (SHAPE["batch"], length, SHAPE["num_heads"], SHAPE["head_dim"])
    keys = jax.random.split(jax.random.fold_in(jax.random.key(length), draw), count)
    return jax.block_until_ready([jax.random.normal(key, shape, jnp.float32) for key in keys])


def _timed(compiled: Any, length: int, count: int) -> dict[str, float | int]:
    draws = (fresh(length, count, draw) for draw in itertools.count())

    def seconds(calls: int, warm_up: int) -> list[float]:
        inputs = itertools.islice(draws, calls + warm_up)
        return measure.times(lambda arrays: compiled(*arrays), inputs, warm_up)

    first = seconds(1, measure.WARM_UP)
    more = max(LEAST_CALLS, min(CALLS, int(SECONDS / first[0]))) - 1
    return measure.spread(first + seconds(more, 0))


def run_cell(name: str, length: int) -> dict[str, Any]:
    """`measure_cell` in a process of its own; what ends it is the outcome."""
    command = [sys.executable, "-m", "experiments.benchmark", "--cell", name, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        failed = {"outcome": "failed", "reason": last_line(done)}
        return {"name": name, "length": length, "forward": failed, "gradient": failed}
    return json.loads(done.stdout)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Why a process failed, in one line."""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def still_true(cells: list[dict[str, Any]], here: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells that would be measured alike now: same attention, versions, machine; none that failed."""
    kept = []
    for cell in cells:
        before = cell.get("provenance")
        changed = provenance.differences(before, here) if before else {}
        changed.pop(provenance.CODE, None)
        same_code = cell.get("attention_sha256") == provenance.code_sha256(("attention",))
        if before and not changed and same_code:
            kept.append(cell)
    return kept


def run(lengths: tuple[int, ...], names: tuple[str, ...], fresh: bool) -> None:
    """Measure the cells that are missing, keep each as it is finished, and write the page."""
    cells = files.read_json(RESULTS) if RESULTS.exists() and not fresh else []
    cells = still_true(cells, provenance.gather())
    known = {(cell["name"], cell["length"]) for cell in cells}
    RESULTS.parent.mkdir(exist_ok=True)
    for length in lengths:
        for name in names:
            if (name, length) not in known:
                print(f"{name} at {length}", flush=True)
                cells.append(run_cell(name, length))
                files.write_json(RESULTS, cells)
    files.write(PAGE, benchmark_page.page(cells, BASELINE))
    print(f"wrote {PAGE.relative_to(provenance.ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--names", nargs="+", default=contenders(), choices=contenders())
    parser.add_argument("--fresh", action="store_true", help="measure again what is measured already")
    parser.add_argument("--cell", nargs=2, metavar=("NAME", "LENGTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(measure_cell(arguments.cell[0], int(arguments.cell[1]))))
    else:
        run(tuple(arguments.lengths), tuple(arguments.names), arguments.fresh)


if __name__ == "__main__":
    main()
