"""Which records were shown to be the best of their table."""

from collections.abc import Sequence
from typing import Any

from experiments.records import Record
from experiments.report import compare

MOST = 50  # records of a table in which pairs are tested: their number grows as its square


def pairs(family: Sequence[Record]) -> dict[frozenset[int], dict[str, Any]]:
    """Claims on all pairs of a table, whatever part of it is spoken of: the correction is for all of them."""
    return {frozenset((id(c["better"]), id(c["worse"]))): c for c in compare.claims(family)}


def best(ranked: Sequence[Record], family: Sequence[Record] | None = None) -> list[Record]:
    """The first of the ranked records and those not shown to be worse, if each was shown to beat all others.

    [] if that was not tested for some pair, or nothing is left to beat. `family` is the table that they are
    part of, if they are not all of it.
    """
    family = ranked if family is None else family
    if len(ranked) < 2 or len(family) > MOST:
        return []
    claims = pairs(family)

    def ahead(one: Record, other: Record) -> bool | None:
        claim = claims[frozenset((id(one), id(other)))]
        if claim["untested"] == compare.EQUAL:
            return False
        if claim["untested"] or claim["doubts"]:
            return None
        return claim["better"] is one and claim["p"] < 1 - compare.CONFIDENCE

    first, *others = ranked
    level = [first, *(other for other in others if ahead(first, other) is False)]
    below = [other for other in others if not any(other is each for each in level)]
    return level if below and all(ahead(one, other) for one in level for other in below) else []
