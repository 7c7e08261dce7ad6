"""How something grows with the length, and from which length on one thing is below another."""

import itertools
import math

import numpy as np


def exponent(lengths: list[int], values: list[float]) -> float | None:
    """Slope of log value against log length, None below three points."""
    if len(lengths) < 3:
        return None
    return float(np.polyfit(np.log(np.array(lengths, float)), np.log(values), 1)[0])


def crossover(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """The length from which ours stays below theirs, both given by length and above 0, in a phrase.

    Between the two lengths around it, both are taken for powers of the length. "below N" if ours is below at
    the shortest length in common already, "not up to N" if it is not at the longest, "-" if there is none in
    common.
    """
    lengths = sorted(ours.keys() & theirs.keys())
    if not lengths:
        return "-"
    ahead = {n: math.log(theirs[n] / ours[n]) for n in lengths}
    if ahead[lengths[-1]] <= 0:
        return f"not up to {lengths[-1]:,}"
    for low, high in reversed([*itertools.pairwise(lengths)]):
        if ahead[low] <= 0:
            share = ahead[low] / (ahead[low] - ahead[high])
            return f"{low * (high / low) ** share:,.0f}"
    return f"below {lengths[0]:,}"
