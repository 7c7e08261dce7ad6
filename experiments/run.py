"""One cell: its folder, its seeds one after the other, what it costs, its record, its exit code."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from experiments import (
    contents,
    files,
    optimizer,
    program,
    provenance,
    records,
    screen,
    settings,
    tables,
    train,
    work,
)
from experiments.checks import UsageError, check_data
from experiments.config import Config
from experiments.contents import Cell, Record
from experiments.interrupt import Interrupted, Interrupts

EXIT_CODES = {
    records.FINISHED: 0,
    records.FAILED: 1,
    records.INTERRUPTED: 75,
    records.UNFINISHED: 75,
    records.DIVERGED: 3,
    records.OUT_OF_MEMORY: 4,
    records.OUT_OF_MEMORY_COMPILED: 4,
}
NOT_COMPARABLE = 5
EXHAUSTED = "RESOURCE_EXHAUSTED"  # in what XLA says when memory does not suffice


def run(
    config: Config,
    differences: dict[str, Any],
    workdir: str,
    *,
    argv: list[str],
    dry_run: bool = False,
    require_device: str | None = None,
    allow_changes: bool = False,
) -> int:
    """Do what is left of a config's run, show it beside the comparable ones of `workdir`, give the exit code.

    `config` is resolved, `differences` what in it is not default, `argv` the command. A run
    that was begun with other code, versions or device is not continued unless `allow_changes`.

    0 finished, 1 an error (raised), 3 diverged, 4 out of memory, 5 not comparable with what was begun,
    75 interrupted and resumable by the same command, 130 Ctrl-C. Raises UsageError for what cannot be asked.
    """
    _check_device(require_device)
    out = screen.console()
    task, variant = settings.task(config), settings.variant(config)
    check_data(task)
    here = provenance.gather()
    cell = Cell(config, settings.identity(config), differences, task, variant, argv, here)
    screen.banner(out, here, provenance.idle_accelerator())
    screen.differences(out, config.name, differences)
    if dry_run:
        return _plan(out, cell)
    folder = Path(workdir) / f"{config.name}-{cell.identity}"
    with _alone(folder):
        return _continue(out, cell, folder, allow_changes)


def _check_device(required: str | None) -> None:
    try:
        platform = jax.devices()[0].platform
    except RuntimeError as error:
        raise UsageError(f"no device: {' '.join(str(error).split())}") from error
    if required and required != platform:
        raise UsageError(f"--require_device={required}, but jax computes on {platform}")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the run's folder. Raises UsageError if another process does, or if there can be no such folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise UsageError(f"--workdir={folder.parent}: {error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another process is at work in {folder}") from error
        yield


def _plan(out: Console, cell: Cell) -> int:
    built = program.build(cell.config, cell.task)
    record = contents.new(cell, built.abstract_state.params)
    record["memory"] = built.memory
    steps, warmup = cell.config.train.steps, cell.config.optimizer.warmup_steps
    rate = optimizer.schedule(cell.config.optimizer, steps)
    points = sorted({0, min(warmup, steps - 1), steps // 2, steps - 1})
    tables.plan(out, record, [(step, np.asarray(rate(step)).item()) for step in points])
    if reason := work.shortage(built):
        out.print(f"[bold red]would not be run:[/] {reason}")
    return 0


def _continue(out: Console, cell: Cell, folder: Path, allow_changes: bool) -> int:
    now = contents.new(cell, train.abstract_state(cell.config, cell.task).params)
    record = records.read_record(folder) or now
    todo = work.left(record, cell)
    changes = contents.changes(record, now)
    done = record["outcome"] in (records.FINISHED, records.DIVERGED) and not work.unmeasured(record, cell)
    if not todo and done:
        since = f" (since then: {'; '.join(changes)})" if changes else ""
        out.print(f"{record['outcome']}: {folder}{since}", markup=False)
        _results(out, record, folder)
        return record["exit_code"]
    if changes and not allow_changes:
        screen.refuse(out, folder, changes)
        return NOT_COMPARABLE
    contents.begin_session(record, cell, changes)
    _keep_diff(folder, record)
    records.write_record(folder, record)
    code = _attempt(out, cell, folder, record, todo)
    _results(out, record, folder)
    return code


def _keep_diff(folder: Path, record: Record) -> None:
    git = record["sessions"][-1]["git"]
    if git and git["diff_sha256"]:
        files.write(folder / f"dirty-{git['diff_sha256'][:8]}.diff", provenance.diff())


def _attempt(out: Console, cell: Cell, folder: Path, record: Record, todo: list[int]) -> int:
    """Work, and however it ends, write down how."""
    outcome, code, reason = records.FAILED, EXIT_CODES[records.FAILED], None
    try:
        steps, primary = cell.config.train.steps, cell.task.primary
        with Interrupts() as interrupts, screen.Live(out, steps, primary) as live:
            outcome, reason = work.do(work.Work(cell, folder, record, interrupts.check, live))
        code = EXIT_CODES[outcome]
    except Interrupted as stopped:
        outcome, code, reason = records.INTERRUPTED, stopped.exit_code, str(stopped)
    except KeyboardInterrupt:
        outcome, code, reason = (
            records.INTERRUPTED,
            130,
            "stopped before it could save",
        )
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        if not _is_out_of_memory(error):
            raise
        outcome, code = records.OUT_OF_MEMORY, EXIT_CODES[records.OUT_OF_MEMORY]
    finally:
        contents.end_session(record, todo, outcome, code, reason)
        records.write_record(folder, record)
    if outcome != records.FINISHED:
        out.print(f"{outcome}: {reason}", markup=False)
    return code


def _is_out_of_memory(error: BaseException) -> bool:
    exhausted = isinstance(error, jax.errors.JaxRuntimeError) and EXHAUSTED in str(error)
    return exhausted or isinstance(error, MemoryError)


def _results(out: Console, record: Record, folder: Path) -> None:
    found, complaints = records.find(folder.parent)
    others = [other for path, other in found if path != folder]
    tables.results(out, record, others, complaints)
