"""What a run has to do: measure speed and memory, choose the learning rate, train the seeds."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from experiments import diagnoses, measure, records
from experiments.config.checks import one_line
from experiments.diagnose import diagnosis
from experiments.diagnose.look import Looker
from experiments.fields import Config
from experiments.generate.generate import generate
from experiments.generate.sampling import Sampling
from experiments.running import contents
from experiments.running.contents import Cell, Record
from experiments.training import checkpoint, grid, layout, program, trained
from experiments.training.fit import Fit, Report, checkpoints, fit

# Seeds that train as one program at the most, where the config does not say. On a CPU one: what fills its
# cores already goes no faster together.
AT_ONCE = 16


@dataclasses.dataclass(frozen=True)
class Work:
    """A cell's record and where it is kept, and who may interrupt and is told."""

    cell: Cell
    folder: Path
    record: Record
    check: Callable[[], None]  # raises Interrupted
    report: Report

    def save(self) -> None:
        records.write_record(self.folder, self.record)


def left(record: Record, config: Config) -> list[int]:
    """Seeds that are asked for and have no result."""
    return [seed for seed in config.seeds if not contents.settled(record, seed)]


def unmeasured(record: Record, config: Config) -> bool:
    """Whether speed and memory are asked for and not known."""
    return config.eval.timed_steps > 0 and "measured" not in record["memory"]


def undiagnosed(folder: Path, record: Record, config: Config) -> int | None:
    """The first seed that was trained to its end, if heat maps of it are asked for and are not there."""
    ended = [s for s in config.seeds if record["seeds"].get(str(s), {}).get("outcome") == records.FINISHED]
    if not config.eval.diagnose or not ended or diagnoses.path(folder, min(ended)).exists():
        return None
    return min(ended)


def is_done(record: Record, config: Config) -> bool:
    """Whether the record has all that is asked for."""
    ended = record["outcome"] in (records.FINISHED, records.DIVERGED)
    return ended and not left(record, config) and not unmeasured(record, config)


def do(work: Work) -> tuple[str, str | None]:
    """Outcome and reason of the run once everything is done that can be. Raises Interrupted."""
    cell, record = work.cell, work.record
    work.report.note("compiling")
    single = program.build(cell.config, cell.task)
    record["memory"] |= single.memory
    record["speed"]["compile_seconds"] = single.compile_seconds
    record["speed"]["cached"] = list(single.cached)
    if reason := shortage(single):
        return records.OUT_OF_MEMORY_COMPILED, reason
    work.save()
    if unmeasured(record, cell.config):  # before training, whose memory would be found in use
        work.report.note("measuring speed and memory")
        found = program.measured(cell.config, cell.task, single, work.check)
        record["speed"] |= found["speed"]
        record["memory"]["measured"] = found["memory"]
        work.save()
    looker = Looker(cell.config, cell.task) if cell.config.eval.diagnose else None
    if todo := left(record, cell.config):
        record["not_evaluated"] = what_does_not_fit(single)
        single = without(single, record["not_evaluated"])
        rate = _learning_rate(work)
        if rate is None:
            return records.DIVERGED, "at every learning rate of the grid"
        if rate != cell.config.optimizer.learning_rate:
            cell = dataclasses.replace(cell, config=grid.with_rate(cell.config, rate))
            single = without(program.build(cell.config, cell.task), record["not_evaluated"])
        if reason := _train(dataclasses.replace(work, cell=cell), single, todo, looker):
            return records.OUT_OF_MEMORY_COMPILED, reason
        _sample(dataclasses.replace(work, cell=cell))
    _diagnose(work, looker)
    return contents.outcome(record), "; ".join(contents.reasons(record)) or None


def trace(cell: Cell, folder: Path) -> str | None:
    """Leave a trace of training steps in the folder, for TensorBoard or Perfetto; why, if it does not fit."""
    built = program.build(cell.config, cell.task)
    if reason := shortage(built):
        return reason
    program.profile(built, folder)
    return None


def shortage(built: program.Program) -> str | None:
    """Why training, or evaluation at the task's length, does not fit."""
    lengths = [
        program.forward_name(built.task, length) for length in built.evaluate if length != built.task.length
    ]
    needed = max(memory["total"] for name, memory in built.memory.items() if name not in lengths)
    return _shortage(built, needed)


def _shortage(built: program.Program, needed: int) -> str | None:
    """Why a program that needs that much on each device does not fit."""
    return measure.shortage(needed * layout.sharing(built.config), jax.devices()[0])


def what_does_not_fit(built: program.Program) -> dict[str, str]:
    """Lengths other than the task's at which evaluation does not fit, and why."""
    needed = {
        length: built.memory[program.forward_name(built.task, length)]["total"]
        for length in built.evaluate
        if length != built.task.length
    }
    return {
        str(length): f"{records.OUT_OF_MEMORY_COMPILED}: {count} bytes"
        for length, count in needed.items()
        if _shortage(built, count)
    }


def without(built: program.Program, lengths: dict[str, str]) -> program.Program:
    """The program without evaluation at some lengths."""
    kept = {length: compiled for length, compiled in built.evaluate.items() if str(length) not in lengths}
    return dataclasses.replace(built, evaluate=kept)


def _learning_rate(work: Work) -> float | None:
    """The config's, or the best of its grid, tried once; None if none can be trained."""
    optimizer, record = work.cell.config.optimizer, work.record
    if not optimizer.learning_rate_grid:
        return optimizer.learning_rate
    for rate in optimizer.learning_rate_grid:
        if repr(rate) not in record["grid"]:
            found = grid.trial(work.cell.config, work.cell.task, rate, work.folder, work.check, work.report)
            record["grid"][repr(rate)] = found
            work.save()
    rate = grid.chosen(record["grid"], work.cell.task)
    work.report.note(
        f"learning rate {rate:g} validates best" if rate else "no learning rate could be trained"
    )
    record["learning_rate"] = rate
    return rate


def _train(work: Work, single: program.Program, todo: list[int], looker: Looker | None) -> str | None:
    """Groups that were begun or planned are continued as they are; other seeds make new groups.

    Why it cannot be, where a group that was begun does not fit any more.
    """
    record, config = work.record, work.cell.config
    built = {1: single}
    record["groups"] = [
        group
        for group in record["groups"]
        if _has_begun(work, group) or (set(group) <= set(todo) and _still_fits(work, group, built))
    ]
    grouped = {seed for group in record["groups"] for seed in group}
    fresh = [seed for seed in todo if seed not in grouped]
    alone = jax.devices()[0].platform == "cpu" or layout.num_devices(config) > 1
    most = 1 if alone else AT_ONCE
    size = min(config.train.seeds_at_once or most, max(1, len(fresh)))
    while fresh and size > 1 and _too_much(work, size, built):
        size = (size + 1) // 2
    record["groups"] += [fresh[start : start + size] for start in range(0, len(fresh), size)]
    work.save()
    look = None if looker is None else functools.partial(_look, work, looker)
    for group in record["groups"]:
        if set(group) & set(todo):
            if group == [grid.SEED] and looker is None and not _has_begun(work, group):
                grid.reuse(work.folder, config.optimizer.learning_rate)
            count = len(group)
            if count not in built:
                work.report.note(f"compiling {count} seeds at once")
                built[count] = program.build(config, work.cell.task, count)
                if reason := shortage(built[count]):
                    return f"{count} seeds that began together: {reason}"
                record["not_evaluated"] |= what_does_not_fit(built[count])
                built[count] = without(built[count], record["not_evaluated"])
            entries = fit(Fit(built[count], tuple(group), work.folder, work.check, work.report, look=look))
            record["seeds"] |= {str(seed): records.plain(entry) for seed, entry in entries.items()}
            work.save()
    return None


def _look(work: Work, looker: Looker, seed: int, step: int, params: Any) -> dict[str, Any] | None:
    """A look, or None and a note: whatever is wrong with it, the training is not to suffer."""
    try:
        return looker(seed, step, params)
    except Exception as error:
        work.report.note(f"no look at seed {seed}, step {step}: {_reason(error)}")
        return None


def _diagnose(work: Work, looker: Looker | None) -> None:
    """Leave heat maps of the first seed that was trained to its end, if they are asked for."""
    seed = undiagnosed(work.folder, work.record, work.cell.config)
    if seed is None:
        return
    work.save()  # where its parameters are
    work.report.note("diagnosing")
    try:
        diagnosis.write(work.folder, diagnosis.diagnosis(trained.load(work.folder, seed), looker=looker))
    except Exception as error:
        work.report.note(f"no diagnosis: {_reason(error)}")


def _sample(work: Work) -> None:
    """Leave what the first seed that was trained to its end writes, where a task is one of text."""
    record, config, prompt = work.record, work.cell.config, work.cell.task.prompt
    seeds = [int(seed) for seed, entry in record["seeds"].items() if entry["outcome"] == records.FINISHED]
    if not config.eval.sample_tokens or prompt is None or not seeds:
        return
    work.save()  # where its parameters are
    try:
        model, drawn = trained.load(work.folder, min(seeds)), Sampling(temperature=0.8, top_p=0.95)
        tokens = generate(model, [work.cell.task.encode(prompt)], config.eval.sample_tokens, drawn)
    except Exception as error:
        work.report.note(f"no sample: {_reason(error)}")
        return
    text = work.cell.task.write(tokens[0])
    how = {"temperature": drawn.temperature, "top_p": drawn.top_p}
    record["sample"] = {"seed": min(seeds), "prompt": prompt, "text": text, **how}
    work.save()


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)[:300]}"


def _still_fits(work: Work, group: list[int], built: dict[int, program.Program]) -> bool:
    """Whether a group that was planned and saved nothing trains as planned: its bits depend on its size."""
    asked = [session["config"]["train.seeds_at_once"] for session in work.record["sessions"][-2:]]
    if asked[0] != asked[-1]:
        return False
    reason = _too_much(work, len(group), built)
    if reason:
        work.report.note(f"{len(group)} seeds do not train together, as was planned: {reason}")
    return reason is None


def _too_much(work: Work, size: int, built: dict[int, program.Program]) -> str | None:
    """Why that many seeds do not fit at once; if they do, None, and their program is in `built`."""
    if size in built:
        return None
    several = without(program.build(work.cell.config, work.cell.task, size), work.record["not_evaluated"])
    reason = shortage(several) or "; ".join(what_does_not_fit(several).values()) or None
    if reason is None:
        built[size] = several
    return reason


def _has_begun(work: Work, group: list[int]) -> bool:
    if any(contents.settled(work.record, seed) for seed in group):
        return True
    return bool(checkpoint.steps(checkpoints(work.folder, tuple(group))))
