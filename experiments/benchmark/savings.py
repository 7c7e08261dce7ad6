"""What gradient checkpointing, mixed precision, blockwise attention and microbatches save, and cost.

    python -m experiments.benchmark.savings                                  # rewrites docs/savings.md
    python -m experiments.benchmark.savings --config.task.length=2048        # another size, on screen only

One training step of configs/base.py with 4 layers and batch 8. For each row it is compiled for accelerators
by `--mode=plan`, which takes the extra `plan`, and compiled and timed here in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiments import files, provenance
from experiments.benchmark.cells import last_line
from experiments.config import settings
from experiments.report import tables
from experiments.training import program

CONFIG = provenance.ROOT / "configs" / "base.py"
PAGE = provenance.ROOT / "docs" / "savings.md"
RESULTS = provenance.ROOT / "results" / "savings.json"
COMMON = (
    "--config.model.num_layers=4", "--config.train.batch_size=8",
    "--config.eval.timed_steps=5", "--config.eval.batch_size=1",
)  # fmt: skip
TARGETS = {"tpu-v5e": "TPU v5e", "h200": "H200"}  # compiled for
DENSE, BLOCKWISE = ("--config.attention.name=dense",), ("--config.attention.name=full",)
REMAT = ("--config.model.remat=True",)
BFLOAT16 = ("--config.model.compute_dtype=bfloat16",)
PARTS = ("--config.train.num_microbatches=4",)
ROWS = {
    "scores written out (`dense`)": DENSE,
    "`dense`, gradient checkpointing": (*DENSE, *REMAT),
    "`dense`, bfloat16": (*DENSE, *BFLOAT16),
    "`dense`, 4 microbatches": (*DENSE, *PARTS),
    "blockwise (`full`)": BLOCKWISE,
    "`full`, gradient checkpointing": (*BLOCKWISE, *REMAT),
    "`full`, bfloat16": (*BLOCKWISE, *BFLOAT16),
    "`full`, 4 microbatches": (*BLOCKWISE, *PARTS),
    "`full`, all three": (*BLOCKWISE, *REMAT, *BFLOAT16, *PARTS),
}


def measure_row(overrides: list[str]) -> dict[str, Any]:
    """Compiled memory of the training step and its speed, in this process."""
    config = settings.load(str(CONFIG), overrides)
    task = settings.task(config)
    built = program.build(config, task)
    speed = program.measured(config, task, built, lambda: None)["speed"]
    memory = built.memory["training_step"]
    return {"memory": memory, "seconds": speed["training_step"], "provenance": provenance.gather()}


def run(command: list[str], overrides: tuple[str, ...]) -> str:
    """What a process prints. If it fails, its last words are this one's."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=provenance.ROOT)
    if done.returncode:
        sys.exit(f"savings: {' '.join(overrides)}: {last_line(done)}")
    return done.stdout


def measured_row(overrides: tuple[str, ...]) -> dict[str, Any]:
    """`measure_row` in a process of its own."""
    return json.loads(
        run([sys.executable, "-m", "experiments.benchmark.savings", "--row", *overrides], overrides)
    )


def planned_row(overrides: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What the compiler of each of TARGETS says, by `--mode=plan`."""
    with tempfile.TemporaryDirectory() as workdir:
        asked = [f"--config={CONFIG}", "--mode=plan", f"--target={','.join(TARGETS)}", f"--workdir={workdir}"]
        run([sys.executable, "launch.py", *asked, *overrides], overrides)
        (path,) = Path(workdir, "plans").glob("*.json")
        return files.read_json(path)["compiled_for"]


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Memory and time of each row, and each as a share of the first one's."""
    first = next(iter(rows.values()))
    lines = []
    for name, row in rows.items():
        sizes = [_temporaries(row, place) for place in ("here", *TARGETS)]
        whole = [_temporaries(first, place) for place in ("here", *TARGETS)]
        shares = [
            f"{tables.in_bytes(size)} ({size / of:.2f}x)" for size, of in zip(sizes, whole, strict=True)
        ]
        seconds = row["seconds"]["median"]
        pace = f"{1000 * seconds:.4g} ({seconds / first['seconds']['median']:.2f}x)"
        lines.append([name, *shares[1:], shares[0], pace])
    return tables.markdown(["", *TARGETS.values(), "CPU", "step on the CPU, ms"], lines)


def _temporaries(row: dict[str, Any], place: str) -> int:
    memory = row["memory"] if place == "here" else row["compiled_for"][place]["memory"]["training_step"]
    return memory["temporaries"]


def page(rows: dict[str, dict[str, Any]]) -> str:
    """The whole page."""
    origin = provenance.origin(next(iter(rows.values()))["provenance"])
    return f"""# What saves memory, and what it costs

Written by `python -m experiments.benchmark.savings`; do not edit. One training step of
`configs/base.py` on `bytes`, 4 layers, length 1024, batch 8: the temporaries that the compiler of each
device plans, beside arguments and outputs, and the median of 5 warm steps on the CPU; in brackets
the share of the first row's.

- {origin}

{table(rows)}

Gradient checkpointing saves where the compiler keeps the order that it asks for. That for CPUs drops it (no
barrier is left in its programs): there it costs time and saves nothing.
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    options, given = parser.parse_known_args(arguments)
    try:
        if options.row:
            print(json.dumps(measure_row(given)))
        else:
            measure(tuple(given))
    except settings.UsageError as error:
        print(f"savings: {error}", file=sys.stderr)
        return 2
    return 0


def measure(given: tuple[str, ...]) -> None:
    """Every row, shown; written down if nothing is `given`. Raises UsageError."""
    asked = {name: (*COMMON, *overrides, *given) for name, overrides in ROWS.items()}
    for overrides in asked.values():
        settings.load(str(CONFIG), list(overrides))  # what is wrong is said before anything is measured
    rows = {}
    for name, overrides in asked.items():
        rows[name] = {"compiled_for": planned_row(overrides), **measured_row(overrides)}
        print(table({name: rows[name]}).splitlines()[-1], flush=True)
    print(table(rows))
    if not given:
        files.write_json(RESULTS, rows)
        files.write(PAGE, page(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
