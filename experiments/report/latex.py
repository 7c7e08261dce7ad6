"""The records of one task as a LaTeX table (package booktabs)."""

from experiments.records import Record
from experiments.report import compare, digits, tables
from experiments.report.best import best

SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    # BibTeX counts braces, also those after a backslash.
    "{": r"{\textbraceleft}", "}": r"{\textbraceright}",
    **{character: f"\\{character}" for character in "&%$#_"},
}  # fmt: skip
COSTS = ("step ms", "temps", "in use", "FLOPs/step", "params")


def escaped(text: str) -> str:
    """As LaTeX prints it."""
    return "".join(SPECIAL.get(character, character) for character in text)


def table(group: list[Record]) -> str:
    """A row for each record, best first. Bold is what was shown to be better than all that is not bold."""
    rows, task = compare.ranked(group), group[0]["task"]
    shown = best([row["record"] for row in rows])
    heads = ["attention", f"test {task['primary'].replace('_', ' ')}", "n", *COSTS]
    lines = []
    for row in rows:
        record = row["record"]
        score = _score(row)
        bold = any(record is each for each in shown)
        costs = tables.costs(record)
        cells = [rf"\texttt{{{escaped(record['attention']['text'])}}}"]
        cells += [rf"\textbf{{{score}}}" if bold else score, str(row["score"]["n"])]
        lines.append(" & ".join([*cells, *(escaped(costs[name]) for name in COSTS)]) + r" \\")
    columns = "l" + "r" * (len(heads) - 1)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(escaped, heads)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _score(row: dict) -> str:
    found = row["score"]
    if found["mean"] is None:
        return escaped(compare.result(row["record"]))
    mean, half = digits.shown(found["mean"], found["half_width"])
    return mean if half is None else rf"{mean} $\pm$ {half}"
