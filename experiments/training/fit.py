"""Seeds of a cell, one or several at once: train, validate, keep the best, resume, test once at the end."""

import collections
import dataclasses
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from experiments import records
from experiments.interrupt import Interrupted
from experiments.training import chance, checkpoint, data, train
from experiments.training.program import Program

LONGEST_NAME = 100  # characters of a folder's name that seeds may make up
IN_FLIGHT = 2  # steps that may be dispatched before the first of them is looked at


@runtime_checkable
class Report(Protocol):
    """Who is told how it goes."""

    def step(self, seeds: str, step: int, loss: float, tokens_per_second: float) -> None: ...

    def validated(self, seeds: str, step: int, values: dict[str, float], best: bool) -> None: ...

    def note(self, text: str) -> None: ...


@dataclasses.dataclass
class Track:
    """How one seed stands. All of it is in the checkpoints."""

    step: int = 0  # the last that it took
    ended: str | None = None  # why it takes no more: "steps", "solved", "patience", "diverged"
    best: dict[str, Any] | None = None  # {"step", "validation": values}
    validated: int = 0  # the last step that was
    waited: int = 0  # validations since the best one
    losses: list[float] = dataclasses.field(default_factory=list)  # since the last logged step
    lines: int = 0  # of its metrics file
    failure: dict[str, Any] | None = None  # {"step", "reason", "last_good_step"} of a divergence


@dataclasses.dataclass
class Course:
    """Where the training of all seeds stands. A checkpoint holds state, positions in the data and tracks."""

    state: train.TrainState  # leading axis: seeds
    batches: list[Any]
    tracks: list[Track]
    step: int = 0
    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: {"train": 0.0, "input": 0.0})
    pending: collections.deque[Any] = dataclasses.field(default_factory=collections.deque)

    @property
    def active(self) -> list[int]:
        return [index for index, track in enumerate(self.tracks) if track.ended is None]


@dataclasses.dataclass(frozen=True)
class Fit:
    """Seeds of a program and the folder in which they keep their files."""

    program: Program
    seeds: tuple[int, ...]  # as many as the program is for
    folder: Path
    check: Callable[[], None]  # raises Interrupted
    report: Report
    tested: bool = True  # False: the test split is not looked at
    # (seed, step, parameters) -> what is seen, or None; not asked if there is none.
    look: Callable[[int, int, Any], dict[str, Any] | None] | None = None

    @property
    def label(self) -> str:
        return f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"

    @property
    def checkpoints(self) -> Path:
        return checkpoints(self.folder, self.seeds)

    def metrics(self, index: int) -> Path:
        return self.folder / f"seed-{self.seeds[index]}" / "metrics.jsonl"


def checkpoints(folder: Path, seeds: tuple[int, ...]) -> Path:
    """Where seeds that train together keep their checkpoints, in a run's folder."""
    name = "-".join(map(str, seeds))
    if len(name) > LONGEST_NAME:
        name = f"{seeds[0]}-{seeds[-1]}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
    return folder / f"{'seed' if len(seeds) == 1 else 'seeds'}-{name}" / "checkpoints"


def fit(run: Fit) -> dict[int, dict[str, Any]]:
    """Train the seeds to their end, from their last checkpoint if they have one; their entries of the record.

    Raises Interrupted, with everything saved, if `run.check` does.
    """
    course = _begin(run)
    _train(run, course)
    return _entries(run, course)


def evaluate(
    program: Program, params: Any, split: str, length: int, check: Callable[[], None]
) -> list[dict[str, float]]:
    """Metrics of a split at a length, for each seed: sums over all its items, in float64."""
    sums = collections.defaultdict(lambda: np.zeros((2, program.num_seeds)))
    for batch in data.eval_batches(program.task, split, program.config.eval.batch_size, length):
        check()
        for metric, pair in jax.device_get(program.evaluate[length](params, batch)).items():
            sums[metric] += np.asarray(pair, np.float64)
    means = {metric: total / weight for metric, (total, weight) in sums.items()}
    return [{metric: float(mean[i]) for metric, mean in means.items()} for i in range(program.num_seeds)]


def better(one: float, other: float, which: str) -> bool:
    """Whether a score beats another, where the "lower" or the "higher" is better."""
    return one < other if which == "lower" else one > other


def _begin(run: Fit) -> Course:
    program = run.program
    restored, complaints = checkpoint.restore_latest(run.checkpoints, program.abstract_state)
    for complaint in complaints:
        run.report.note(complaint)
    batches = [data.train_iterator(program.task, seed, program.config.train.batch_size) for seed in run.seeds]
    if restored is None:
        course = Course(program.init(np.array(run.seeds, np.int32)), batches, [Track() for _ in run.seeds])
    else:
        progress = restored.progress
        for iterator, position in zip(batches, progress["data"], strict=True):
            iterator.set_state(position)
        tracks = [Track(**track) for track in progress["tracks"]]
        course = Course(restored.state, batches, tracks, progress["step"], progress["seconds"])
        run.report.note(f"{run.label} continues at step {course.step}")
    for index, track in enumerate(course.tracks):
        run.metrics(index).parent.mkdir(parents=True, exist_ok=True)
        last = {"train": track.step, "validation": track.validated}
        last |= {} if restored is None else {records.LOOK: track.validated}
        for complaint in records.rewind(run.metrics(index), last, track.lines):
            run.report.note(complaint)
        if restored is None:
            _look(run, course, index)
    return course


def _train(run: Fit, course: Course) -> None:
    settings = run.program.config.train
    try:
        while True:
            if course.step and _due(course.step, settings.eval_every, settings.steps):
                _validate(run, course)
            improved = any(track.best and track.best["step"] == course.step for track in course.tracks)
            due = (
                not course.active or improved or _due(course.step, settings.checkpoint_every, settings.steps)
            )
            if due:
                _save(run, course)
            if not course.active:
                return
            run.check()
            _advance(run, course)
    except Interrupted:
        _save(run, course)
        run.report.note(f"{run.label} is saved at step {course.step}")
        raise


def _due(step: int, every: int, last: int) -> bool:
    return step % every == 0 or step == last


def _advance(run: Fit, course: Course) -> None:
    start = time.perf_counter()
    active = course.active
    batches = {index: next(course.batches[index]) for index in active}
    # One that has ended gets some batch, and stays as it is.
    every = [batches.get(index, batches[active[0]]) for index in range(len(run.seeds))]
    stacked = jax.tree.map(lambda *fields: np.stack(fields), *every)
    course.seconds["input"] += time.perf_counter() - start
    mask = np.isin(np.arange(len(run.seeds)), active)
    course.state, metrics = run.program.train(course.state, stacked, np.array(run.seeds, np.int32), mask)
    course.step += 1
    for index in active:
        course.tracks[index].step = course.step
    course.pending.append((course.step, active, metrics))
    course.seconds["train"] += time.perf_counter() - start
    _collect(run, course, IN_FLIGHT)


def _collect(run: Fit, course: Course, keep: int) -> None:
    """Look at what the steps gave, all but the last `keep` of them."""
    while len(course.pending) > keep:
        step, active, metrics = course.pending.popleft()
        start = time.perf_counter()
        values = jax.device_get(metrics)
        course.seconds["train"] += time.perf_counter() - start
        for index in active:
            if course.tracks[index].ended is None:
                own = {name: float(value[index]) for name, value in values.items()}
                _note_step(run, course, index, step, own)
        losses = [float(values["loss"][index]) for index in active]
        run.report.step(run.label, step, sum(losses) / len(losses), _speed(run, course, step))


def _note_step(run: Fit, course: Course, index: int, step: int, values: dict[str, float]) -> None:
    track = course.tracks[index]
    if wrong := _not_finite(values):
        _diverge(run, course, index, step, wrong)
        return
    track.losses.append(values["loss"])
    if step % run.program.config.train.log_every == 0:
        values["loss"] = math.fsum(track.losses) / len(track.losses)
        track.losses.clear()
        _log(
            run, course, index, {"step": step, "split": "train", **values, "seconds": course.seconds["train"]}
        )


def _log(run: Fit, course: Course, index: int, line: dict[str, Any]) -> None:
    records.append(run.metrics(index), line)
    course.tracks[index].lines += 1


def _not_finite(values: dict[str, float]) -> str | None:
    """The first metric that is no number, in words."""
    return next((f"{name} is {x}" for name, x in values.items() if not math.isfinite(x)), None)


def _diverge(run: Fit, course: Course, index: int, step: int, wrong: str) -> None:
    # What was saved at a step was seen to be finite by that step's own numbers.
    good = max((saved for saved in checkpoint.steps(run.checkpoints) if saved < step), default=None)
    reason = f"{wrong} at step {step}"
    course.tracks[index].ended = "diverged"
    course.tracks[index].failure = {"step": step, "reason": reason, "last_good_step": good}
    run.report.note(f"seed {run.seeds[index]} diverged: {reason}; the last good step is {good}")


def _speed(run: Fit, course: Course, step: int) -> float:
    tokens = step * len(run.seeds) * run.program.config.train.batch_size * run.program.task.length
    return tokens / max(course.seconds["train"], 1e-9)


def _validate(run: Fit, course: Course) -> None:
    _collect(run, course, 0)
    todo = [index for index in course.active if course.tracks[index].validated < course.step]
    if not todo:
        return
    task = run.program.task
    values = evaluate(run.program, course.state.evaluated, "validation", task.length, run.check)
    for index in todo:
        if wrong := _not_finite(values[index]):
            _diverge(run, course, index, course.step, f"validation {wrong}")
            continue
        best = _note_validation(run, course.tracks[index], course.step, values[index])
        _log(run, course, index, {"step": course.step, "split": "validation", **values[index], "best": best})
        run.report.validated(f"seed {run.seeds[index]}", course.step, values[index], best)
        _look(run, course, index)


def _look(run: Fit, course: Course, index: int) -> None:
    if run.look is not None:
        params = jax.tree.map(lambda leaf: leaf[index], course.state.evaluated)
        if seen := run.look(run.seeds[index], course.step, params):
            _log(run, course, index, {"split": records.LOOK, **seen})


def _note_validation(run: Fit, track: Track, step: int, values: dict[str, float]) -> bool:
    """Whether it is the best so far; decides whether the seed goes on."""
    task, settings = run.program.task, run.program.config.train
    score = values[task.primary]
    best = track.best is None or better(score, track.best["validation"][task.primary], task.better)
    track.validated = step
    track.waited = 0 if best else track.waited + 1
    if best:
        track.best = {"step": step, "validation": values}
    solved = task.solved is not None and not better(task.solved, score, task.better)
    if step >= settings.steps:
        track.ended = "steps"
    elif settings.stop_when_solved and solved:
        track.ended = "solved"
    elif settings.patience is not None and track.waited >= settings.patience:
        track.ended = "patience"
    return best


def _save(run: Fit, course: Course) -> None:
    _collect(run, course, 0)
    diverged = all(track.failure for track in course.tracks)
    if diverged or course.step in checkpoint.steps(run.checkpoints):
        return
    progress = {
        "step": course.step,
        "seconds": course.seconds,
        "tracks": [dataclasses.asdict(track) for track in course.tracks],
        "data": [iterator.get_state() for iterator in course.batches],
        "needs": sorted(_needed(course) - {course.step}),
    }
    checkpoint.save(run.checkpoints, course.step, course.state, progress)


def _needed(course: Course) -> set[int]:
    """Steps whose checkpoints hold what later ones do not: the best, and the last before a divergence."""
    best = {track.best["step"] for track in course.tracks if track.best}
    good = {track.failure["last_good_step"] for track in course.tracks if track.failure}
    return (best | good) - {None}


def _entries(run: Fit, course: Course) -> dict[int, dict[str, Any]]:
    """Of the record, by seed."""
    finished = [index for index, track in enumerate(course.tracks) if track.ended != "diverged"]
    best = _best_params(run, course, finished)
    program, task = run.program, run.program.task
    tests: dict[int, list[dict[str, float]]] = {}
    if finished and run.tested:
        for length in program.evaluate:
            tests[length] = evaluate(program, best, "test", length, run.check)
    # The seconds are those of all seeds that were trained as one: no share of them is one seed's own.
    timing = {**course.seconds, "seeds_together": len(run.seeds)}
    entries = {}
    for index, (seed, track) in enumerate(zip(run.seeds, course.tracks, strict=True)):
        if track.failure:
            entries[seed] = {"outcome": records.DIVERGED, **track.failure, "timing": timing}
            continue
        assert track.best is not None  # the last step is validated
        own = {length: values[index] for length, values in tests.items()}
        best_step = track.best["step"]
        if wrong := next((f"at {n} {each}" for n in own if (each := _not_finite(own[n]))), None):
            reason = f"test {wrong} at step {best_step}"
            failure = {"step": best_step, "reason": reason, "last_good_step": None}
            entries[seed] = {"outcome": records.DIVERGED, **failure, "timing": timing}
            continue
        test = own.pop(task.length, {})
        entries[seed] = {
            "outcome": records.FINISHED,
            "step": track.step,
            "ended": track.ended,
            "best_step": best_step,
            "validation": track.best["validation"],
            "test": test,
            "test_at_length": own,
            "at_chance": bool(test) and chance.at_chance(task, test[task.primary]),
            # No task knows other chances at another length.
            "at_chance_at_length": {n: chance.at_chance(task, own[n][task.primary]) for n in own},
            "sha256": _digests(course.state, best, index),
            "timing": timing,
        }
    return entries


def _best_params(run: Fit, course: Course, indices: Sequence[int]) -> Any:
    """The parameters to test, of each seed those of its best step, stacked again."""
    chosen = jax.tree.map(np.array, jax.device_get(course.state.evaluated))
    steps = {
        index: track.best["step"]
        for index, track in enumerate(course.tracks)
        if index in indices and track.best
    }
    for step, group in itertools.groupby(sorted(steps, key=steps.__getitem__), steps.__getitem__):
        if step == course.step:
            continue
        saved = checkpoint.restore(run.checkpoints, step, run.program.abstract_state).state.evaluated
        for index in group:
            jax.tree.map(lambda into, x, i=index: into.__setitem__(i, np.asarray(x[i])), chosen, saved)
    return chosen


def _digests(state: train.TrainState, best: Any, index: int) -> dict[str, str]:
    def digest(tree: Any) -> str:
        return checkpoint.digest(jax.tree.map(lambda x: np.asarray(x)[index], jax.device_get(tree)))

    return {
        "params": digest(state.params),
        "opt_state": digest(state.opt_state),
        "best_params": digest(best),
    }
