"""What a sweep ends with: its own cells beside each other, on the screen and as Markdown."""

from rich.console import Console

from experiments.records import Record
from experiments.report import by_length, compare, groups, sections, tables


def show(out: Console, found: list[Record]) -> None:
    """A table for each group of comparable records, best first, and those by length."""
    lengths = by_length.groups(found)
    for group in groups.scored(found, lengths):
        rows, _ = compare.table(group[0], group[1:])
        best, *others = (row["record"] for row in rows)
        tables.results(out, best, others, [])
        out.print(sections.claims_text([best, *others]) + "\n", markup=False)
    for group in lengths:
        out.print(by_length.title(group).replace("*", ""), markup=False)
        for heads, rows in by_length.parts(group):
            out.print(tables.plain(heads, rows, left=heads[:1]))
        out.print(by_length.note(group), markup=False)


def markdown(name: str, found: list[Record], missing: list[str]) -> str:
    """A page with the same. `missing` are lines on cells that left no record."""
    lengths = by_length.groups(found)
    blocks = [f"# {name}", *(sections.task_section(group) for group in groups.scored(found, lengths))]
    for group in lengths:
        made = [tables.markdown(heads, rows) for heads, rows in by_length.parts(group)]
        blocks += [by_length.title(group), *made, by_length.note(group)]
    blocks += ["\n".join(f"- {line}" for line in missing)] if missing else []
    return "\n\n".join(blocks) + "\n"
