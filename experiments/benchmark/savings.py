"""What gradient checkpointing, mixed precision, blockwise attention and microbatches save, and cost.

    python -m experiments.benchmark.savings                                  # rewrites docs/savings.md
    python -m experiments.benchmark.savings --config.task.length=2048        # another size, on screen only

One training step of configs/base.py with batch 8, compiled and timed in a process of its own for each row.
"""

import argparse
import json
import subprocess
import sys
from typing import Any

from experiments import files, provenance
from experiments.benchmark.cells import last_line
from experiments.config import settings
from experiments.report import tables
from experiments.training import program

CONFIG = provenance.ROOT / "configs" / "base.py"
PAGE = provenance.ROOT / "docs" / "savings.md"
RESULTS = provenance.ROOT / "results" / "savings.json"
COMMON = ("--config.train.batch_size=8", "--config.eval.timed_steps=5", "--config.eval.batch_size=1")
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


def run_row(overrides: tuple[str, ...]) -> dict[str, Any]:
    """`measure_row` in a process of its own. If that fails, its last words are this one's."""
    command = [sys.executable, "-m", "experiments.benchmark.savings", "--row", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=provenance.ROOT)
    if done.returncode:
        sys.exit(f"savings: {' '.join(overrides)}: {last_line(done)}")
    return json.loads(done.stdout)


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Memory and time of each row, and both as a share of the first one's."""
    first = next(iter(rows.values()))
    lines = []
    for name, row in rows.items():
        temporaries, seconds = row["memory"]["temporaries"], row["seconds"]["median"]
        share, pace = temporaries / first["memory"]["temporaries"], seconds / first["seconds"]["median"]
        lines.append(
            [name, tables.in_bytes(temporaries), f"{share:.3g}x", f"{1000 * seconds:.4g}", f"{pace:.3g}x"]
        )
    return tables.markdown(["", "temporaries", "of the first", "step, ms", "of the first"], lines)


def page(rows: dict[str, dict[str, Any]]) -> str:
    """The whole page."""
    origin = provenance.origin(next(iter(rows.values()))["provenance"])
    return "\n".join(
        [
            "# What saves memory, and what it costs",
            "",
            "Written by `python -m experiments.benchmark.savings`; do not edit. One training step of",
            "`configs/base.py` on `bytes`, length 1024, batch 8: what the compiler plans beside arguments",
            "and outputs, and the median of 5 warm steps.",
            "",
            f"- {origin}",
            "",
            table(rows),
            "",
        ]
    )


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
        rows[name] = run_row(overrides)
        print(name, tables.in_bytes(rows[name]["memory"]["temporaries"]), flush=True)
    print(table(rows))
    if not given:
        files.write_json(RESULTS, rows)
        files.write(PAGE, page(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
