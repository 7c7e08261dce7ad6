"""Which of many records stand together."""

from typing import Any

from experiments.records import Record
from experiments.report import compare


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


def scored(found: list[Record], lengths: list[list[Record]]) -> list[list[Record]]:
    """Groups of comparable records, but for those that trained nothing and stand in a table by length."""
    measured: list[Any] = [record for group in lengths for record in group]
    return [
        group
        for group in comparable(found)
        if any(r["config"]["seeds"] or not any(r is other for other in measured) for r in group)
    ]
