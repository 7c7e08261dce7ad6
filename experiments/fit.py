"""One seed of a cell: train, validate, keep the best, resume where it stopped, and test once at the end."""

import collections
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from experiments import checkpoint, data, records, train
from experiments.interrupt import Interrupted
from experiments.program import Program

IN_FLIGHT = 2  # steps that may be dispatched before the first of them is looked at
SAVED = ("step", "best", "validated", "solved", "losses", "seconds")


@runtime_checkable
class Report(Protocol):
    """Who is told how it goes."""

    def step(self, seed: int, step: int, loss: float, tokens_per_second: float) -> None: ...

    def validated(self, seed: int, step: int, values: dict[str, float], best: bool) -> None: ...

    def note(self, text: str) -> None: ...


class DivergedError(Exception):
    """A number that steers the training is not finite."""

    def __init__(self, step: int, what: str, value: float):
        super().__init__(f"{what} is {value} at step {step}")
        self.step = step


@dataclasses.dataclass
class Course:
    """Where the training of a seed stands. A checkpoint holds state, data position and `SAVED`."""

    state: train.TrainState
    batches: Any
    step: int = 0
    best: dict[str, Any] | None = None  # {"step", "validation": values}
    validated: int = 0  # the last step that was
    solved: bool = False
    losses: list[float] = dataclasses.field(default_factory=list)  # since the last logged step
    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: {"train": 0.0, "input": 0.0})
    pending: collections.deque[Any] = dataclasses.field(default_factory=collections.deque)


@dataclasses.dataclass(frozen=True)
class Fit:
    """One seed of a program and where it keeps its files."""

    program: Program
    seed: int
    folder: Path
    check: Callable[[], None]  # raises Interrupted
    report: Report

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"


def fit(run: Fit) -> dict[str, Any]:
    """Train a seed to its end, from its last checkpoint if it has one, and give its entry of the record.

    Raises Interrupted, with everything saved, if `run.check` does.
    """
    course = _begin(run)
    try:
        _train(run, course)
    except DivergedError as error:
        saved = checkpoint.steps(run.checkpoints)
        run.report.note(f"seed {run.seed} diverged: {error}; the last good step is {saved[-1]}")
        entry = {
            "outcome": records.DIVERGED,
            "step": error.step,
            "reason": str(error),
            "last_good_step": saved[-1],
        }
        return entry | {"timing": course.seconds}
    return _entry(run, course)


def evaluate(
    program: Program, params: Any, split: str, length: int, check: Callable[[], None]
) -> dict[str, float]:
    """Metrics of a split at a length: sums over all its items, in float64."""
    compiled, sums = program.evaluate(length), collections.defaultdict(lambda: np.zeros(2))
    for batch in data.eval_batches(program.task, split, program.config.eval.batch_size, length):
        check()
        for metric, pair in jax.device_get(compiled(params, batch)).items():
            sums[metric] += np.asarray(pair, np.float64)
    return {metric: float(total / weight) for metric, (total, weight) in sums.items()}


def _begin(run: Fit) -> Course:
    program = run.program
    restored, complaints = checkpoint.restore_latest(run.checkpoints, program.abstract_state)
    for complaint in complaints:
        run.report.note(complaint)
    batches = data.train_iterator(program.task, run.seed, program.config.train.batch_size)
    run.folder.mkdir(parents=True, exist_ok=True)
    if restored is None:
        course = Course(program.init(np.int32(run.seed)), batches)
    else:
        batches.set_state(restored.progress["data"])
        course = Course(restored.state, batches, **{name: restored.progress[name] for name in SAVED})
        run.report.note(f"seed {run.seed} continues at step {course.step}")
    records.rewind(run.metrics, {"train": course.step, "validation": course.validated})
    return course


def _train(run: Fit, course: Course) -> None:
    settings = run.program.config.train
    try:
        while True:
            if course.step and _due(course.step, settings.eval_every, settings.steps):
                _validate(run, course)
            improved = course.best is not None and course.best["step"] == course.step
            done = course.solved or course.step >= settings.steps
            if done or improved or _due(course.step, settings.checkpoint_every, settings.steps):
                _save(run, course)
            if done:
                return
            run.check()
            _advance(run, course)
    except Interrupted:
        _save(run, course)
        run.report.note(f"seed {run.seed} is saved at step {course.step}")
        raise


def _due(step: int, every: int, last: int) -> bool:
    return step % every == 0 or step == last


def _advance(run: Fit, course: Course) -> None:
    start = time.perf_counter()
    batch = next(course.batches)
    course.seconds["input"] += time.perf_counter() - start
    course.state, metrics = run.program.train(course.state, batch, np.int32(run.seed))
    course.step += 1
    course.pending.append((course.step, metrics))
    course.seconds["train"] += time.perf_counter() - start
    _collect(run, course, IN_FLIGHT)


def _collect(run: Fit, course: Course, keep: int) -> None:
    """Look at what the steps gave, all but the last `keep` of them."""
    settings = run.program.config.train
    while len(course.pending) > keep:
        step, metrics = course.pending.popleft()
        start = time.perf_counter()
        values = {name: float(value) for name, value in jax.device_get(metrics).items() if name != "finite"}
        course.seconds["train"] += time.perf_counter() - start
        for name, value in values.items():
            if not math.isfinite(value):
                raise DivergedError(step, name, value)
        course.losses.append(values["loss"])
        speed = step * settings.batch_size * run.program.task.length / max(course.seconds["train"], 1e-9)
        run.report.step(run.seed, step, values["loss"], speed)
        if step % settings.log_every == 0:
            values["loss"] = math.fsum(course.losses) / len(course.losses)
            course.losses.clear()
            records.append(
                run.metrics, {"step": step, "split": "train", **values, "seconds": course.seconds["train"]}
            )


def _validate(run: Fit, course: Course) -> None:
    if course.validated == course.step:
        return
    _collect(run, course, 0)
    task = run.program.task
    values = evaluate(run.program, course.state.params, "validation", task.length, run.check)
    score = values[task.primary]
    if not math.isfinite(score):
        raise DivergedError(course.step, f"validation {task.primary}", score)
    course.validated = course.step
    best = course.best is None or _better(score, course.best["validation"][task.primary], task.better)
    if best:
        course.best = {"step": course.step, "validation": values}
    if run.program.config.train.stop_when_solved and task.solved is not None:
        course.solved = not _better(task.solved, score, task.better)
    records.append(run.metrics, {"step": course.step, "split": "validation", **values, "best": best})
    run.report.validated(run.seed, course.step, values, best)


def _better(one: float, other: float, better: str) -> bool:
    return one < other if better == "lower" else one > other


def _save(run: Fit, course: Course) -> None:
    _collect(run, course, 0)
    if course.step in checkpoint.steps(run.checkpoints):
        return
    progress = {name: getattr(course, name) for name in SAVED}
    progress["data"] = course.batches.get_state()
    progress["needs"] = [course.best["step"]] if course.best and course.best["step"] != course.step else []
    checkpoint.save(run.checkpoints, course.step, course.state, progress)


def _entry(run: Fit, course: Course) -> dict[str, Any]:
    program, task = run.program, run.program.task
    assert course.best is not None  # the last step is validated
    best = course.state
    if course.best["step"] != course.step:
        best = checkpoint.restore(run.checkpoints, course.best["step"], program.abstract_state).state
    lengths = (task.length, *(length for length in task.eval_lengths if length != task.length))
    tests = {length: evaluate(program, best.params, "test", length, run.check) for length in lengths}
    return {
        "outcome": records.FINISHED,
        "step": course.step,
        "solved": course.solved,
        "best_step": course.best["step"],
        "validation": course.best["validation"],
        "test": tests.pop(task.length),
        "test_at_length": tests,
        "sha256": {
            "params": checkpoint.digest(course.state.params),
            "opt_state": checkpoint.digest(course.state.opt_state),
            "best_params": checkpoint.digest(best.params),
        },
        "timing": course.seconds,
    }
