"""Runs the cells of a sweep, goes on past failures, and ends with the comparison."""

import contextlib
import dataclasses
import functools
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments import codes, files, records
from experiments.config.checks import UsageError
from experiments.interrupt import EXIT_CODES
from experiments.report import tables
from experiments.running import run, screen
from experiments.sweep import cells as described
from experiments.sweep import ending as endings
from experiments.sweep import execute, table
from experiments.sweep.cells import Cell
from experiments.sweep.ending import Ending

FOLDER = "sweeps"  # in the folder of the runs
WAIT = 0.5  # seconds between two looks at a job


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What is asked for."""

    name: str
    cells: list[Cell]
    workdir: Path
    flags: list[str]  # of launch.py, handed on to each cell
    again: bool = False  # start those that are finished too: a flag wants something of them

    @property
    def folder(self) -> Path:
        return self.workdir / FOLDER / self.name

    def log(self, cell: Cell) -> Path:
        """Where what a cell says is kept."""
        return self.folder.absolute() / f"{cell.name}.log"

    @functools.cached_property
    def distinctions(self) -> dict[str, str]:
        return described.distinctions(self.cells)

    def line(self, cell: Cell, text: str) -> str:
        return f"[{self.cells.index(cell) + 1}/{len(self.cells)}] {cell.name}: {text}"


def left(sweep: Sweep) -> int:
    """Show the cells and what is left of each. Exit code 0."""
    rows = [
        [cell.name, sweep.distinctions[cell.name], described.left(cell, cell.record(sweep.workdir))]
        for cell in sweep.cells
    ]
    heads = ["cell", "with", "left"]
    screen.console().print(tables.plain(heads, rows, left=heads))
    return codes.DONE


def start(sweep: Sweep, executor: str, parameters: str) -> int:
    """Run what is left of each cell and show all of them beside each other.

    Exit code 0 if each ended with a result, 1 if any failed, 75 if others can be continued, 75 or 130 if this
    process was asked to stop. Raises UsageError for what cannot be asked, OSError where files cannot be had.
    """
    described.check_all_data(sweep.cells)
    with run.alone(sweep.folder), _signals() as received:
        try:
            chosen = execute.EXECUTORS[executor](sweep.folder / "jobs", execute.parameters(parameters))
        except ValueError as error:
            raise UsageError(str(error)) from error
        out, ended = screen.console(), {}
        out.print(f"what each cell says: {sweep.folder}/<cell>.log", markup=False)
        jobs = _submitted(out, sweep, chosen, ended)
        _await(out, sweep, jobs, ended, received)
        if received:
            for job in jobs.values():
                job.cancel()
            out.print("stopped; the same command continues")
            return EXIT_CODES[signal.Signals(received[0])]
        return _end(out, sweep, ended)


def _submitted(out: Console, sweep: Sweep, executor: Any, ended: dict[str, Ending]) -> dict[str, Any]:
    """The jobs of cells that are not finished, by the cell's name; how the others ended goes into `ended`."""
    jobs = {}
    for cell in sweep.cells:
        record = cell.record(sweep.workdir)
        if record is not None and described.is_done(cell, record) and not sweep.again:
            ended[cell.name] = Ending(record["outcome"], record["exit_code"], record["reason"])
            text = f"{record['outcome']} before{endings.score(record)}"
            out.print(sweep.line(cell, text), markup=False)
        else:
            alone = ["--mode=run"] * cell.beside_sweep
            flags = [*alone, *sweep.flags, f"--workdir={sweep.workdir}"]
            arguments = [f"--config={cell.path}", *flags, *cell.overrides]
            jobs[cell.name] = executor.submit(execute.run_cell, arguments, str(sweep.log(cell)))
    _keep(sweep, ended)
    return jobs


def _await(
    out: Console, sweep: Sweep, jobs: dict[str, Any], ended: dict[str, Ending], received: list[int]
) -> None:
    """Put into `ended` how each job ended, one after the other, until a signal is received."""
    began, before = time.monotonic(), len(ended)
    for cell in (cell for cell in sweep.cells if cell.name in jobs):
        unlike = sweep.distinctions[cell.name]
        out.print(sweep.line(cell, f"begins{unlike and ', ' + unlike}"), markup=False)
        since = time.monotonic()
        code, reason = _result(jobs[cell.name], received)
        if received:
            return
        record = cell.record(sweep.workdir)
        ending = ended[cell.name] = endings.judged(record, code, reason, sweep.log(cell))
        _keep(sweep, ended)
        now, remaining = time.monotonic(), len(sweep.cells) - len(ended)
        text = f"{endings.told(ending, record)}, {now - since:.0f} s"
        if remaining:
            text += f", about {_duration((now - began) / (len(ended) - before) * remaining)} left"
        out.print(sweep.line(cell, text), markup=False)


def _result(job: Any, received: list[int]) -> tuple[int | None, str | None]:
    """Exit code of a cell; without one, why there is none."""
    while not job.done() and not received:
        time.sleep(WAIT)
    if received:
        return None, None
    try:
        return job.result(), None
    except Exception as error:  # whatever a cluster does to a job is how it ended
        return None, endings.line(error)


def _end(out: Console, sweep: Sweep, ended: dict[str, Ending]) -> int:
    """The comparison, and what has no place in it; the exit code."""
    read = (cell.record(sweep.workdir) for cell in sweep.cells)
    found = [record for record in read if record is not None]
    others = [
        f"{name}: {endings.told(ending, None)}" for name, ending in ended.items() if not ending.is_result
    ]
    out.print()
    table.show(out, found)
    at = sweep.folder / "table.md"
    files.write(at, table.markdown(sweep.name, found, others))
    for line in others:
        out.print(line, markup=False)
    out.print(f"written to {at}, and what each cell said beside it", markup=False)
    return endings.code_of_all([*ended.values()])


def _keep(sweep: Sweep, ended: dict[str, Ending]) -> None:
    """Put down which cells there are and how each ended; the truth is in their records."""
    kept = [
        {"cell": cell.name, "config": cell.path, "overrides": cell.overrides}
        | dataclasses.asdict(ended.get(cell.name, Ending(records.UNFINISHED)))
        for cell in sweep.cells
    ]
    files.write_json(sweep.folder / "sweep.json", {"name": sweep.name, "cells": kept})


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that have asked this process to stop: the cell that runs is told by who runs it."""
    received: list[int] = []
    before = {number: signal.signal(number, lambda n, _: received.append(n)) for number in EXIT_CODES}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
