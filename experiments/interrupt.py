"""Signals. SIGTERM and Ctrl-C are polled between steps: what is begun is finished and saved."""

import signal
from types import FrameType
from typing import Any

from experiments import codes

EXIT_CODES = {signal.SIGTERM: codes.RESUMABLE, signal.SIGINT: codes.CTRL_C}


class Interrupted(Exception):
    """The process was asked to stop. `exit_code` says how it ends."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = EXIT_CODES[signal.Signals(number)]


class Interrupts:
    """While entered, SIGTERM and Ctrl-C only make `check` raise; a second Ctrl-C does not wait for it."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._seen = False  # one has come, polled or not
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._receive) for number in EXIT_CODES}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises Interrupted if a signal has come since the last check."""
        if self._received is not None:
            number, self._received = self._received, None
            raise Interrupted(number)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        again, self._seen = self._seen, True
        if again and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = number


def end_with_the_reader() -> None:
    """Of a command that only reads and prints: `| head` and Ctrl-C end it at once and without a word.

    Called before what takes long to import.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
