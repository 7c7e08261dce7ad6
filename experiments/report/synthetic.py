"""What was learnt of several synthetic tasks, side by side: a row for each attention."""

from typing import Any, NamedTuple

from experiments import records
from experiments.records import Record
from experiments.report import compare, sections, tables

CAUTION = (
    "What this does not show: one seed of each, so no difference is tested, and a seed that learns late "
    "may not have learnt within the steps. The three tasks ask for exact look-up of what was seen; what "
    "language, images or long documents ask for besides is not in them, and an attention that recalls "
    "nothing may model text well (`bytes`, above). The models have two layers, one head of 64 and a "
    "convolution over three tokens: nothing follows for other widths, depths or longer training. "
    "Windows, blocks and chunks were made short by hand for these lengths and not tuned; learning rates "
    "were, over three."
)


class Column(NamedTuple):
    """Records that compare: one task at one length."""

    task: str
    length: int
    num_pairs: int  # of recall; 0: it has none

    def __str__(self) -> str:
        return f"{self.task}, {f'{self.num_pairs} pairs in ' if self.num_pairs else ''}{self.length}"


def section(found: list[Record]) -> str:
    """The table and what is to be known of it. Raises ValueError for records that do not compare."""
    columns: dict[Column, dict[str, Record]] = {}
    for record in found:
        columns.setdefault(_column(record), {})[record["attention"]["text"]] = record
    ordered = sorted(columns, key=lambda column: (not column.num_pairs, column))
    heads, rows = ["attention"], {record["attention"]["text"]: [] for record in found}
    for column in ordered:
        _check(list(columns[column].values()))
        lengths = _lengths(columns[column])
        heads += [str(column), "steps", *(f"at {length:,}" for length in lengths)]
        for text, row in rows.items():
            row += _scores(columns[column].get(text), lengths)
    heads += ["params", "cache", "FLOPs"]
    counted = [column for column in ordered if columns[column].keys() == rows.keys()] or ordered
    for text, row in rows.items():
        row += _costs(columns[counted[-1]].get(text))
    best = sorted(rows, key=lambda text: (-_sum(text, columns), text))
    chance = "; ".join(f"{column} {_chance(columns[column]):.1%}" for column in ordered)
    note = (
        "Test accuracy, and the steps after which the validation reached 99% (-: it did not); "
        f"blank: not run. Best first, by the sum over the tasks. Chance: {chance}. "
        "*cache*: what decoding one sequence takes beside parameters; *FLOPs*: of a training step with one "
        f"sequence; both for {counted[-1]}."
    )
    machines = {sections.origin_text(record["provenance"]) for record in found}
    where = f"Trained on: {'; '.join(sorted(machines))}."
    below = " ".join([note, sections.rates_text(found[:1]), where, sections.commits_text(found)])
    table = tables.markdown(heads, [[f"`{text}`", *rows[text]] for text in best])
    return "\n\n".join([table, below, CAUTION])


def _check(column: list[Record]) -> None:
    refused = [reason for other in column for reason in compare.refusals(column[0], other, timed=False)]
    if refused:
        raise ValueError(f"records that do not compare: {'; '.join(refused)}")


def _column(record: Record) -> Column:
    fields = record["config"]["task"]
    return Column(record["task"]["name"], record["task"]["length"], fields.get("num_pairs", 0))


def _lengths(column: dict[str, Record]) -> list[int]:
    return sorted({length for record in column.values() for length in record["task"]["eval_lengths"]})


def _scores(record: Record | None, lengths: list[int]) -> list[str]:
    """Score, steps and scores at other lengths."""
    nothing = [""] * (1 + len(lengths))
    if record is None:
        return ["", *nothing]
    entry, *_ = (*record["seeds"].values(), record)
    if entry["outcome"] != records.FINISHED:
        return [entry["outcome"], *nothing]
    metric, at = record["task"]["primary"], entry["test_at_length"]
    steps = str(entry["step"]) if entry.get("ended") == "solved" else "-"
    elsewhere = [f"{at[str(n)][metric]:.1%}" if str(n) in at else "does not fit" for n in lengths]
    return [f"{entry['test'][metric]:.1%}", steps, *elsewhere]


def _costs(record: Record | None) -> list[str]:
    if record is None:
        return ["", "", ""]
    cache = record.get("decoding", {}).get("cache_bytes")
    counted = tables.in_flops(record["flops"]["training"])
    return [f"{record['parameters']['total']:,}", "-" if cache is None else tables.in_bytes(cache), counted]


def _sum(text: str, columns: dict[Column, dict[str, Record]]) -> float:
    total = 0.0
    for column in columns.values():
        entries: Any = column[text]["seeds"].values() if text in column else ()
        total += sum(entry.get("test", {}).get("accuracy") or 0 for entry in entries)
    return total


def _chance(column: dict[str, Record]) -> float:
    return next(iter(column.values()))["task"]["chance"]["accuracy"]
