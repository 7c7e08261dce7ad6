"""Exponents and crossovers of made-up numbers."""

import pytest

from experiments.report import growth

LENGTHS = (1024, 2048, 4096, 8192)


def of(value):
    return {n: value(n) for n in LENGTHS}


def test_exponents():
    assert growth.exponent([*LENGTHS], [3.0 * n * n for n in LENGTHS]) == pytest.approx(2)
    assert growth.exponent([1, 2], [1.0, 2.0]) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (of(lambda n: 3000 * n), of(lambda n: n * n), "3,000"),
        (of(lambda n: n), of(lambda n: n * n), "below 1,024"),
        (of(lambda n: 10**5 * n), of(lambda n: n * n), "not up to 8,192"),
        (of(lambda n: n), of(lambda n: n), "not up to 8,192"),
        (of(lambda n: n), {}, "-"),
        # The last crossing counts, and only lengths in common.
        ({1: 1.0, 2: 3.0, 4: 1.0, 8: 1.0, 16: 9.0}, {1: 2.0, 2: 1.0, 4: 3.0, 8: 3.0}, "3"),
    ],
)
def test_crossovers(ours, theirs, expected):
    assert growth.crossover(ours, theirs) == expected
