"""How to make a record again, and whether it then agrees.

    python -m experiments.reproduce runs/window128-00ac6f76d4                       # the commands
    python -m experiments.reproduce runs/window128-00ac6f76d4 --against again/...   # does it agree?

Exit code 0 if it agrees, 5 if not, 2 for what is no run.
"""

import argparse
import sys
from pathlib import Path

from experiments.interrupt import end_with_the_reader

if __name__ == "__main__":
    end_with_the_reader()

from experiments import codes, records
from experiments.reproduce.agreement import APART, agreement
from experiments.reproduce.steps import steps


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.reproduce", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run, or its record.json")
    parser.add_argument("--against", metavar="RUN", type=Path, help="the run that was made again")
    options = parser.parse_args(arguments)
    try:
        first = records.demanded(options.run)
        if options.against is None:
            print("\n".join(steps(first, records.folder_of(options.run))))
            return codes.DONE
        found = agreement(first, records.demanded(options.against))
    except (OSError, ValueError) as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return codes.WRONG_USE
    print("\n".join([*found.lines, found.verdict]))
    return codes.NOT_COMPARABLE if found.verdict == APART else codes.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
