"""Quote runs: a sentence and a BibTeX entry for each.

    python -m experiments.cite runs/window128-00ac6f76d4 ...

RUN is a run's folder, or its record.json. A run from a changed working tree is not citable: it is said what
differs, and the exit code is 5; it is 2 for what is no run.
"""

import argparse
import sys
from pathlib import Path

from experiments.interrupt import end_with_the_reader

if __name__ == "__main__":
    end_with_the_reader()

from experiments import codes, records
from experiments.cite import quote


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.cite", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path)
    code = codes.DONE
    for path in parser.parse_args(arguments).runs:
        try:
            record = records.demanded(path)
        except (OSError, ValueError) as error:
            print(f"cite: {error}", file=sys.stderr)
            return codes.WRONG_USE
        if reason := quote.refusal(record):
            print(f"cite: {path}: {reason}", file=sys.stderr)
            code = codes.NOT_COMPARABLE
        else:
            print(f"{quote.sentence(record)}\n\n{quote.bibtex(record)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
