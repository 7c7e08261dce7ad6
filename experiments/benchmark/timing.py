"""How often a program is called, and what is told of its times."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from experiments import measure

CALLS, LEAST_CALLS, SECONDS = 9, 3, 10.0  # as many calls as fit into so many seconds, within these bounds


def timed(run: Callable[[Any], Any], draws: Iterator[Any]) -> dict[str, float | int]:
    """Median and quartiles of the seconds of warm calls, each with the next of `draws`."""

    def seconds(calls: int, warm_up: int) -> list[float]:
        return measure.times(run, itertools.islice(draws, calls + warm_up), warm_up)

    first = seconds(1, measure.WARM_UP)
    more = max(LEAST_CALLS, min(CALLS, int(SECONDS / first[0]))) - 1
    return measure.spread(first + seconds(more, 0))
