"""Becomes a command that is killed as soon as the process that started it is gone (on Linux).

    python tied.py PARENT COMMAND...

Else a cell would go on after its sweep was killed, and the sweep, started again, would find it at work.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of prctl(2); it outlasts exec


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
