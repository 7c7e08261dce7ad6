"""What each head of a trained model attends to, and what stands out.

    python -m experiments.diagnose runs/window128-00ac6f76d4
    python -m experiments.diagnose RUN --text "def main(argv):"
    python -m experiments.diagnose RUN --text "a river bank" --other "the money bank" --word bank

Statistics and findings are of the first validation items; heat maps of the text, or of the first of them.
With `--word`: how alike its queries, and its keys, are in the two texts, by cosine, at the last token of its
first occurrence in each, which may be inside another word. What comes before it must differ: in a causal
model nothing else is seen. Writes a page, and keeps the numbers in RUN/diagnosis, where
`python -m experiments.report` finds them.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.interrupt import end_with_the_reader

if __name__ == "__main__":
    end_with_the_reader()

from experiments import codes, files
from experiments.diagnose.diagnosis import Word, diagnosis, write
from experiments.report import diagnosed, page, tables
from experiments.training import trained
from experiments.training.checkpoint import DamagedError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.diagnose", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run")
    parser.add_argument("--seed", type=int, help="which of its seeds (the first)")
    parser.add_argument("--text", help="what to draw heat maps of")
    parser.add_argument("--other", help="another text with the word")
    parser.add_argument("--word", help="in both texts")
    parser.add_argument("--out", type=Path, default=Path("diagnosis.html"), help="the page (diagnosis.html)")
    options = parser.parse_args(arguments)
    word, other, text = options.word, options.other, options.text
    if (word is None) != (other is None) or (word is not None and text is None):
        parser.error("--word goes with --text and --other")
    try:
        model = trained.load(options.run, options.seed)
        found = diagnosis(model, text, None if word is None else Word(word, text, other))
    except (OSError, ValueError, DamagedError) as error:
        print(f"diagnose: {error}", file=sys.stderr)
        return codes.WRONG_USE
    print("\n".join(_lines(found)))  # before what may fail: it took long to find
    try:
        files.write(options.out, page.diagnosis_html(found))
        print(options.out)
        print(write(options.run, found))
    except OSError as error:
        print(f"diagnose: not kept: {error}", file=sys.stderr)
        return codes.WRONG_USE
    return codes.DONE


def _lines(found: dict[str, Any]) -> list[str]:
    shown = diagnosed.shown(found)
    lines = [shown["title"].replace("`", ""), "", *shown["findings"], ""]
    lines += [tables.markdown(*shown["heads"]), ""] if shown["heads"] else []
    lines += [*shown["notes"], ""]
    for table in shown["vectors"]:
        lines += [table["title"], *table["notes"], "", tables.markdown(table["heads"], table["rows"]), ""]
    return [*lines, shown["code"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
