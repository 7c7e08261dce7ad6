"""Time and memory of every variant and its peers by length, a process for each cell, and the page of them.

    python -m experiments.benchmark                        # measure what is missing, write the page
    python -m experiments.benchmark --lengths 1024 4096    # these lengths only
    python -m experiments.benchmark --fresh                # measure everything again, in one run

A cell is the forward pass, and the gradient with respect to query, key and value, of self-attention over
float32 arrays (batch 1, 8 heads of width 64), causal where a variant can be and no name ends in -two-sided.
Compiled, warm, inputs passed as arguments, every output waited for: the median of several calls. What the
compiler says needs more than 80% of the free memory is not run. Cells are kept in results/performance.json as
they are finished, so an interrupted run continues. Peers that are not installed are said to be so;
`pip install -e '.[peers]'` brings them.
"""

import argparse
import datetime
import json

from experiments import files, provenance
from experiments.benchmark import cells as measured
from experiments.benchmark import page

RESULTS = provenance.ROOT / "results" / "performance.json"
PAGE = provenance.ROOT / "docs" / "performance.md"
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)


def run(lengths: tuple[int, ...], names: tuple[str, ...], fresh: bool) -> None:
    """Measure the cells that are missing, keep each as it is finished, and write the page."""
    cells = files.read_json(RESULTS) if RESULTS.exists() and not fresh else []
    cells = measured.still_true(cells, provenance.gather())
    known = {(cell["name"], cell["length"]) for cell in cells}
    begun = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    RESULTS.parent.mkdir(exist_ok=True)
    for length in lengths:
        for name in names:
            if (name, length) not in known:
                print(f"{name} at {length}", flush=True)
                cells.append({**measured.run_cell(name, length), "run": begun})
                files.write_json(RESULTS, cells)
    files.write(PAGE, page.page(cells))
    print(f"wrote {PAGE.relative_to(provenance.ROOT)}")


def main() -> None:
    names = measured.contenders()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--names", nargs="+", default=names, choices=names)
    parser.add_argument("--fresh", action="store_true", help="measure again what is measured already")
    parser.add_argument("--cell", nargs=2, metavar=("NAME", "LENGTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(measured.measure_cell(arguments.cell[0], int(arguments.cell[1]))))
    else:
        run(tuple(arguments.lengths), tuple(arguments.names), arguments.fresh)


if __name__ == "__main__":
    main()
