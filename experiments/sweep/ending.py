"""How a cell ended: from its record and the exit code of its process."""

import dataclasses
import signal
from pathlib import Path

from experiments import codes, records
from experiments.config.checks import one_line
from experiments.interrupt import EXIT_CODES
from experiments.records import Record
from experiments.report import compare

RESULTS = (records.FINISHED, records.DIVERGED, records.OUT_OF_MEMORY, records.OUT_OF_MEMORY_COMPILED)
MOST_REASON = 300  # characters


@dataclasses.dataclass(frozen=True)
class Ending:
    """An outcome of a run, the exit code if there was a process, and why."""

    outcome: str
    exit_code: int | None = None
    reason: str | None = None

    @property
    def is_result(self) -> bool:
        """Whether it is none that has to be mended, or continued."""
        return self.outcome in RESULTS


def judged(record: Record | None, code: int | None, reason: str | None, log: Path) -> Ending:
    """Of a process that ended with `code`, below 0 for a signal; None, with the reason, if nobody knows."""
    if code in (codes.DONE, codes.DIVERGED, codes.OUT_OF_MEMORY) and record is not None:
        return Ending(record["outcome"], code, record["reason"])
    if code in EXIT_CODES.values():
        return Ending(records.INTERRUPTED, code, record["reason"] if record else None)
    if code is not None and code < 0:
        return Ending(records.FAILED, code, f"killed by {signal.Signals(-code).name}")
    return Ending(records.FAILED, code, reason or _last_line(log))


def told(ending: Ending, record: Record | None) -> str:
    """In a phrase."""
    if ending.is_result and record is not None:
        return ending.outcome + score(record)
    return ending.outcome + (f": {ending.reason}" if ending.reason else "")


def score(record: Record) -> str:
    """ ", 0.99 accuracy": the mean of the seeds; "" if there is none."""
    metric = record["task"]["primary"]
    mean = compare.interval(list(compare.scores(record, metric).values()))["mean"]
    return "" if mean is None else f", {mean:.4g} {metric}"


def line(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {one_line(error)[:MOST_REASON]}"


def code_of_all(endings: list[Ending]) -> int:
    """Exit code of a sweep: 0 if all are results, 1 if any failed, 75 if others can be continued."""
    if any(ending.outcome == records.FAILED for ending in endings):
        return codes.FAILED
    return codes.DONE if all(ending.is_result for ending in endings) else codes.RESUMABLE


def _last_line(log: Path) -> str | None:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return None
    return lines[-1][:MOST_REASON] if lines else None
