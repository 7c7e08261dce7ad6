"""One page of all that folders of runs hold, and the same as tables and pictures for a paper.

    python -m experiments.report runs                           # writes report.html
    python -m experiments.report runs --out page.html --export paper

The page needs nothing beside it. `--export` writes into a folder: runs.csv and seeds.csv (every number in
full), a table of each task as Markdown and LaTeX (booktabs), each chart as SVG and PDF.
"""

import argparse
import sys
from pathlib import Path

from experiments.interrupt import end_with_the_reader

if __name__ == "__main__":
    end_with_the_reader()

from experiments import codes, files
from experiments.report import page
from experiments.report.export import export
from experiments.report.gathered import gather


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.report", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("folders", nargs="+", metavar="RUNS", type=Path, help="folder of runs")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page (report.html)")
    parser.add_argument("--title", default="Attention, side by side", help="of the page")
    parser.add_argument("--export", type=Path, help="folder for tables and pictures")
    options = parser.parse_args(arguments)
    if options.title != files.printable(options.title):
        parser.error(f"--title {options.title!r} is no text: it has bytes that are not UTF-8")
    try:
        found = gather(options.folders)
        files.write(options.out, page.html(found, options.title))
        written = [options.out, *(export(found, options.export) if options.export else [])]
    except (OSError, ValueError) as error:
        print(f"report: {error}", file=sys.stderr)
        return codes.WRONG_USE
    for path in written:
        if not files.is_printed_into(path):  # the page is all that its reader wants
            print(path)
    for complaint in found.complaints:
        print(f"not read: {complaint}", file=sys.stderr)
    return codes.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
