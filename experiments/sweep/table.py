"""What a sweep ends with: its own cells beside each other, on the screen and as Markdown."""

from typing import Any

from rich.console import Console

from experiments.records import Record
from experiments.report import compare, sections, tables
from experiments.sweep import scaling


def comparable(found: list[Record]) -> list[list[Record]]:
    """Records that may stand in one table, together; in the order in which they are given."""
    together: list[list[Record]] = []
    for record in found:
        for group in together:
            if not compare.refusals(group[0], record):
                group.append(record)
                break
        else:
            together.append([record])
    return together


def show(out: Console, found: list[Record]) -> None:
    """A table for each group of comparable records, best first, and those by length."""
    by_length = scaling.groups(found)
    for group in _scored(found, by_length):
        rows, _ = compare.table(group[0], group[1:])
        best, *others = (row["record"] for row in rows)
        tables.results(out, best, others, [])
        out.print(sections.claims_text([best, *others]) + "\n", markup=False)
    for group in by_length:
        out.print(scaling.title(group).replace("*", ""), markup=False)
        for heads, rows in scaling.parts(group):
            out.print(tables.plain(heads, rows, left=heads[:1]))
        out.print(scaling.note(group), markup=False)


def markdown(name: str, found: list[Record], missing: list[str]) -> str:
    """A page with the same. `missing` are lines on cells that left no record."""
    by_length = scaling.groups(found)
    blocks = [f"# {name}", *(sections.task_section(group) for group in _scored(found, by_length))]
    for group in by_length:
        made = [tables.markdown(heads, rows) for heads, rows in scaling.parts(group)]
        blocks += [scaling.title(group), *made, scaling.note(group)]
    blocks += ["\n".join(f"- {line}" for line in missing)] if missing else []
    return "\n\n".join(blocks) + "\n"


def _scored(found: list[Record], by_length: list[list[Record]]) -> list[list[Record]]:
    """Groups of comparable records, but for those that trained nothing and stand in a table by length."""
    measured: list[Any] = [record for group in by_length for record in group]
    return [
        group
        for group in comparable(found)
        if any(r["config"]["seeds"] or not any(r is other for other in measured) for r in group)
    ]
