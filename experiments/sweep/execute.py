"""Where cells run: here, one after the other, or as jobs of a Slurm cluster.

An executor is anything with `submit(function, *arguments) -> job`, and a job anything with `done()`,
`result()` and `cancel()`: submitit's are. Nothing heavy is imported here: a job imports this file.
"""

import ast
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments import tied
from experiments.interrupt import EXIT_CODES

LAUNCH = Path(__file__).resolve().parents[2] / "launch.py"
CLUSTER = "SLURM"  # begins the names of what Slurm tells a job
DEFAULTS = {"time": 24 * 60, "job_name": "cell"}  # of a job of Slurm; time in minutes


def run_cell(arguments: list[str], log: str) -> int:
    """Run launch.py with these arguments in a process of its own, and add what it says to a file.

    Its exit code, below 0 for a signal that killed it. SIGTERM and Ctrl-C are passed on to it meanwhile, and
    then meet what would have met them else.
    """
    command = tied.command([sys.executable, str(LAUNCH), *arguments])
    child: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # came while there was no child to pass them on to

    def pass_on(number: int) -> None:
        child[0].send_signal(number) if child else early.append(number)

    with open(log, "ab") as output, _signals_to(pass_on):
        # A session of its own: Ctrl-C in a terminal would else reach it twice, and not let it save.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(),
            start_new_session=True,
        )  # fmt: skip
        child.append(process)
        for number in early:
            process.send_signal(number)
        return process.wait()


def environment() -> dict[str, str]:
    """Of a cell's process: one process computes a cell, whatever a cluster says of others.

    Who finds a few of Slurm's variables takes itself for one of several processes, and waits for the others.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER)}


@contextlib.contextmanager
def _signals_to(told: Callable[[int], None]) -> Iterator[None]:
    before: dict[int, Any] = {}

    def receive(number: int, frame: Any) -> None:
        told(number)
        if callable(before[number]):
            before[number](number, frame)

    for number in EXIT_CODES:
        before[number] = signal.getsignal(number)
        signal.signal(number, receive)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Here:
    """Runs each job in this process, when its result is asked for: cells at once would share the time."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Job":
        return Job(function, arguments)


class Job:
    """A call that is still to be made."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]):
        self._call = function, arguments

    def done(self) -> bool:
        """Whether there is nothing to wait for before `result`, which does the work."""
        return True

    def result(self) -> Any:
        function, arguments = self._call
        return function(*arguments)

    def cancel(self) -> None:
        """Nothing is begun that could be stopped."""


def local(_folder: Path, _parameters: dict[str, Any]) -> Any:
    """This machine, which takes no parameters."""
    return Here()


def slurm(folder: Path, parameters: dict[str, Any]) -> Any:
    """submitit's, which keeps its files in `folder`.

    Raises ValueError if it is not installed, if this is no cluster, or for an unknown parameter.
    """
    try:
        import submitit  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError(
            "--executor=slurm wants submitit, which is not installed: pip install -e '.[slurm]'"
        ) from error
    try:
        executor = submitit.SlurmExecutor(folder=folder / "%j")
        executor.update_parameters(**(DEFAULTS | parameters))
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"--executor=slurm: {' '.join(str(error).split())}") from error
    return executor


EXECUTORS = {"local": local, "slurm": slurm}


def parameters(text: str) -> dict[str, Any]:
    """Of the flag --slurm, "partition=gpu,time=60". Raises ValueError for anything else."""
    found = {}
    for each in filter(None, text.split(",")):
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--slurm={text}: {each!r} is not understood; it is written name=value,...")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found
