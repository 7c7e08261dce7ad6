"""What gradient checkpointing, mixed precision, blockwise attention and microbatches save, and cost.

    python -m experiments.savings                                  # rewrites docs/savings.md
    python -m experiments.savings --config.task.length=2048        # another size, on the screen only

One training step of configs/base.py with batch 8, compiled and timed in a process of its own for each row.
"""

import json
import subprocess
import sys
from typing import Any

from experiments import files, program, provenance, settings, tables

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
    """`measure_row` in a process of its own."""
    command = [sys.executable, "-m", "experiments.savings", "--row", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=provenance.ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
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
            "Written by `python -m experiments.savings`; do not edit. One training step of `configs/base.py`",
            "on `bytes`, length 1024, batch 8: what the compiler plans beside arguments and outputs, and the",
            "median of 5 warm steps.",
            "",
            f"- {origin}",
            "",
            table(rows),
            "",
        ]
    )


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--row"]:
        print(json.dumps(measure_row(arguments[1:])))
        return
    rows = {}
    for name, overrides in ROWS.items():
        rows[name] = run_row((*COMMON, *overrides, *arguments))
        print(name, tables.in_bytes(rows[name]["memory"]["temporaries"]), flush=True)
    print(table(rows))
    if not arguments:
        files.write_json(RESULTS, rows)
        files.write(PAGE, page(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
