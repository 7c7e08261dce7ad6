"""A learning rate chosen on validation, from the same grid for every variant."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import records
from experiments.fields import Config
from experiments.tasks.task import Task
from experiments.training import program
from experiments.training.fit import Fit, Report, better, fit

SEED = 0  # of all trials: the rate must not depend on which seeds are asked for
TRIALS = "grid"  # their folder in a run's


def with_rate(config: Config, rate: float) -> Config:
    """The config with one learning rate and no grid."""
    changed = config.copy_and_resolve_references()
    with changed.unlocked():
        changed.optimizer.learning_rate = rate
        changed.optimizer.learning_rate_grid = ()
    return changed.lock()


def trial(
    config: Config, task: Task, rate: float, folder: Path, check: Callable[[], None], report: Report
) -> dict[str, Any]:
    """Train seed `SEED` at a rate, in a run's folder: outcome, and validation score of the best step or None.

    Continues where it stopped. Raises Interrupted, with everything saved, if `check` does.
    """
    report.note(f"trying learning rate {rate:g}")
    built = program.build(with_rate(config, rate), task)
    built = dataclasses.replace(built, evaluate={task.length: built.evaluate[task.length]})
    run = Fit(built, (SEED,), folder / TRIALS / repr(rate), check, report, tested=False)
    entry = fit(run)[SEED]
    return {
        "seed": SEED,
        "outcome": entry["outcome"],
        "reason": entry.get("reason"),
        "validation": entry.get("validation", {}).get(task.primary),
    }


def reuse(folder: Path, rate: float) -> None:
    """Let seed `SEED` of a run begin with what its trial at that rate has left: it would train the same."""
    trial, partial = folder / TRIALS / repr(rate) / f"seed-{SEED}", folder / TRIALS / "copied"
    own = folder / trial.name
    if trial.exists():
        shutil.rmtree(partial, ignore_errors=True)  # of a copy that was killed
        shutil.copytree(trial, partial)
        shutil.rmtree(own, ignore_errors=True)  # without a checkpoint, or it would not be asked for
        partial.rename(own)


def chosen(trials: dict[str, dict[str, Any]], task: Task) -> float | None:
    """The rate that validates best, the lower one of equals; None if none was trained to its end."""
    best = None
    for rate in sorted(trials, key=float):
        score = trials[rate]["validation"]
        if trials[rate]["outcome"] != records.FINISHED or score is None:
            continue
        if best is None or better(score, trials[best]["validation"], task.better):
            best = rate
    return None if best is None else float(best)
