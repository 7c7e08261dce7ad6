"""Which records were shown to be the best of their table."""

from collections.abc import Sequence

from experiments.records import Record
from experiments.report import compare

MOST = 50  # records of a table in which pairs are tested: their number grows as its square


def best(ranked: Sequence[Record]) -> list[Record]:
    """The first of the ranked records and those not shown to be worse, if each was shown to beat all others.

    [] if that was not tested for some pair, or nothing is left to beat.
    """
    if not 1 < len(ranked) <= MOST:
        return []
    claims = {frozenset((id(c["better"]), id(c["worse"]))): c for c in compare.claims(ranked)}

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
