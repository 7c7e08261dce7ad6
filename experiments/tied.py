"""Becomes a command that is killed as soon as the process that started it is gone (on Linux).

    python tied.py PARENT COMMAND...

Else a cell would go on after its sweep was killed, and the sweep, started again, would find it at work; and a
compiler, for minutes, after its plan was.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of prctl(2); it outlasts exec


def command(words: list[str]) -> list[str]:
    """A command that does what `words` do, tied to this process."""
    return [sys.executable, __file__, str(os.getpid()), *words]


def main(parent: int, words: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before
            sys.exit(1)
    os.execv(words[0], words)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
