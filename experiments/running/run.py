"""One cell: its folder, its seeds one after the other, what it costs, its record, its exit code."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from experiments import codes, files, measure, provenance, records
from experiments.config import settings
from experiments.config.checks import UsageError, check_data, one_line
from experiments.fields import Config
from experiments.interrupt import Interrupted, Interrupts
from experiments.model import cost
from experiments.report import tables
from experiments.running import contents, screen, work
from experiments.running.contents import Cell, Record
from experiments.training import layout, optimizer, program, train
from experiments.training.checkpoint import DamagedError, StructureError

EXIT_CODES = {
    records.FINISHED: codes.DONE,
    records.FAILED: codes.FAILED,
    records.INTERRUPTED: codes.RESUMABLE,
    records.UNFINISHED: codes.RESUMABLE,
    records.DIVERGED: codes.DIVERGED,
    records.OUT_OF_MEMORY: codes.OUT_OF_MEMORY,
    records.OUT_OF_MEMORY_COMPILED: codes.OUT_OF_MEMORY,
}
# What passes, and what stays until somebody moves a file or gives a right: to try that again is no use.
DISK = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
    *(errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT),
)
PLACE = (
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EACCES, errno.EPERM),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY),
)


def run(
    config: Config,
    differences: dict[str, Any],
    workdir: str,
    *,
    argv: list[str],
    dry_run: bool = False,
    require_device: str | None = None,
    allow_changes: bool = False,
    profile: bool = False,
) -> int:
    """Do what is left of a config's run, show it beside the comparable ones of `workdir`, give the exit code.

    `config` is resolved, `differences` what in it is not default, `argv` the command. A run
    that was begun with other code, versions, device or data is not continued unless `allow_changes`.
    `profile` leaves a trace of a few training steps in the run's folder, and the record as it is without.

    The exit codes are those of `codes`. Raises UsageError for what cannot be asked, OSError where
    files cannot be had (`code_of` says how that ends), and what is our error.
    """
    _check_device(require_device)
    out = screen.console()
    task, mixers = settings.task(config), settings.mixers(config)
    check_data(task)
    here = provenance.gather(layout.num_devices(config))
    cell = Cell(config, settings.identity(config), differences, task, mixers, argv, here)
    screen.banner(out, here, provenance.idle_accelerator())
    screen.differences(out, config.name, settings.layers(config), differences)
    for mixer in dict.fromkeys(mixers):
        if cost.no_cheaper_than_full(config, mixer, task):
            screen.no_cheaper(out, mixer.name, task.length)
    if dry_run:
        return _plan(out, cell)
    folder = Path(workdir) / f"{config.name}-{cell.identity}"
    with alone(folder):
        return _continue(out, cell, folder, allow_changes, profile)


def keep_compiled(folder: str) -> None:
    """Keep every compiled program in a folder, and take it from there. Raises OSError if there is none."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(Path(folder).absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def code_of(error: OSError) -> int | None:
    """Exit code where files cannot be had: 75 for what passes, 2 for what stays, None for anything else."""
    if error.errno in DISK:
        return codes.RESUMABLE
    return codes.WRONG_USE if error.errno in PLACE else None


def _check_device(required: str | None) -> None:
    try:
        platform = jax.devices()[0].platform
    except (RuntimeError, AssertionError) as error:  # of a platform that has no plugin jax only asserts
        asked = f" for JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}"
        raise UsageError(f"no device{asked}: {one_line(error) or 'jax has none'}") from error
    if required and required != platform:
        raise UsageError(f"--require_device={required}, but jax computes on {platform}")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder. Raises UsageError if another process does, OSError if there can be none."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        itself = os.open(folder, os.O_RDONLY)
        try:
            _hold(folder, lock.fileno())
            with contextlib.suppress(OSError):  # not every file system can
                _hold(folder, itself)  # somebody may remove the file
            files.sweep(folder)
            yield
        finally:
            os.close(itself)


def _hold(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"another process is at work in {folder}") from error


def _plan(out: Console, cell: Cell) -> int:
    out.print("compiling")
    built = program.build(cell.config, cell.task)
    record = contents.new(cell, train.abstract_state(cell.config, cell.task).params)
    record["memory"] = built.memory
    steps, warmup = cell.config.train.steps, cell.config.optimizer.warmup_steps
    rate = optimizer.schedule(cell.config.optimizer, steps)
    points = sorted({0, min(warmup, steps - 1), steps // 2, steps - 1})
    tables.plan(out, record, [(step, np.asarray(rate(step)).item()) for step in points])
    if reason := work.shortage(built):
        out.print(f"[bold red]would not be run:[/] {reason}")
    return 0


def _continue(out: Console, cell: Cell, folder: Path, allow_changes: bool, profile: bool) -> int:
    now = contents.new(cell, train.abstract_state(cell.config, cell.task).params)
    record = _begun(folder, cell.identity) or now
    todo = work.left(record, cell.config)
    measured = record["speed"].get("training_step", {}).get("n", 0)
    if 0 < measured < cell.config.eval.timed_steps:
        out.print(f"speed and memory stay as they were measured with {measured} steps")
    changes = contents.changes(record, now)
    if work.is_done(record, cell.config) and work.undiagnosed(folder, record, cell.config) is None:
        since = f" (since then: {'; '.join(changes)})" if changes else ""
        out.print(f"{record['outcome']}: {folder}{since}", markup=False)
        _results(out, record, folder)
        return (_trace(out, cell, folder) if profile else None) or EXIT_CODES[record["outcome"]]
    if changes and not allow_changes:
        screen.refuse(out, folder, changes)
        return codes.NOT_COMPARABLE
    contents.begin_session(record, cell, changes)
    provenance.keep_diff(folder)
    records.write_record(folder, record)
    code = _attempt(out, cell, folder, record, todo)
    _results(out, record, folder)
    more = "; the same command continues" if record["outcome"] == records.INTERRUPTED else ""
    out.print(f"recorded in {folder / records.RECORD}{more}", markup=False)
    settled = record["outcome"] in (records.FINISHED, records.DIVERGED)
    return (_trace(out, cell, folder) if profile and settled else None) or code


def _trace(out: Console, cell: Cell, folder: Path) -> int | None:
    """Leave a trace of a run whose record is written, and is not touched; an exit code if it cannot be."""
    out.print(f"trace of {program.PROFILED} training steps: {folder / 'profile'}", markup=False)
    try:
        reason = work.trace(cell, folder / "profile")
        code = codes.OUT_OF_MEMORY if reason else None
    except Exception as error:
        ending = _ending(error)
        if ending is None:
            raise
        _, code, reason = ending
    if reason:
        out.print(f"no trace: {reason}", markup=False)
    return code


def _begun(folder: Path, identity: str) -> Record | None:
    """The folder's record, None if it has none. Raises UsageError for one that this code cannot continue."""
    try:
        record = records.read_record(folder)
    except ValueError as error:
        raise UsageError(f"{error}; it is left as it is: give another --workdir") from error
    if record is not None and record.get("schema") != records.SCHEMA:
        raise UsageError(
            f"{folder} has a record of schema {record.get('schema')}, and this code writes {records.SCHEMA}; "
            "it is left as it is: give another --workdir"
        )
    if record is not None and record["identity"] != identity:
        raise UsageError(
            f"the record in {folder} is of {record['name']}-{record['identity']}; it is left as it is: "
            "give another --workdir"
        )
    return record


def _attempt(out: Console, cell: Cell, folder: Path, record: Record, todo: list[int]) -> int:
    """Work, and however it ends, write down how. Raises what is nobody's fault but ours."""
    outcome, code, reason = records.FAILED, codes.FAILED, None
    try:
        steps, primary = cell.config.train.steps, cell.task.primary
        with Interrupts() as interrupts, screen.Live(out, steps, primary) as live:
            outcome, reason = work.do(work.Work(cell, folder, record, interrupts.check, live))
        code = EXIT_CODES[outcome]
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        ending = _ending(error)
        if ending is None:
            raise
        outcome, code, reason = ending
        if code == codes.WRONG_USE:
            raise
    finally:
        contents.end_session(record, todo, outcome, code, reason)
        _write_last(out, folder, record)
    if outcome != records.FINISHED:
        out.print(f"{outcome}: {reason}", markup=False)
    return code


def _ending(error: BaseException) -> tuple[str, int, str] | None:
    """Outcome, exit code and reason of what may befall any run; None for anything else."""
    line = one_line(error)
    if isinstance(error, Interrupted):
        return records.INTERRUPTED, error.exit_code, line
    if isinstance(error, KeyboardInterrupt):
        return records.INTERRUPTED, codes.CTRL_C, "stopped before it could save"
    if isinstance(error, StructureError):
        return records.FAILED, codes.NOT_COMPARABLE, line
    if isinstance(error, DamagedError):
        return records.INTERRUPTED, codes.RESUMABLE, line
    code = code_of(error) if isinstance(error, OSError) else None
    if code == codes.WRONG_USE:
        return records.FAILED, code, line
    if code or _is_disk(error):
        return records.INTERRUPTED, codes.RESUMABLE, f"no file can be had: {line[:300]}"
    if isinstance(error, MemoryError) or (
        isinstance(error, jax.errors.JaxRuntimeError) and measure.EXHAUSTED in str(error)
    ):
        return records.OUT_OF_MEMORY, codes.OUT_OF_MEMORY, f"{type(error).__name__}: {line}"
    return None


def _is_disk(error: BaseException) -> bool:
    # A full disk reaches us from Orbax as a ValueError with the words of what wrote.
    words = (measure.EXHAUSTED, *map(os.strerror, DISK))
    return isinstance(error, ValueError) and any(phrase in str(error) for phrase in words)


def _write_last(out: Console, folder: Path, record: Record) -> None:
    try:
        records.write_record(folder, record)
    except OSError as error:  # what was written before stays, and says "unfinished"
        out.print(f"{folder / records.RECORD} could not be brought up to date: {error}", markup=False)


def _results(out: Console, record: Record, folder: Path) -> None:
    found, complaints = records.find(folder.parent)
    others = [other for path, other in found if path != folder]
    tables.results(out, record, others, complaints)
    if "sample" in record:
        screen.sample(out, record["sample"])
