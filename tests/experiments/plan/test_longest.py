"""The search ends at the grid's last length that fits, however memory grows, and asks little."""

import pytest

from experiments.config.checks import UsageError
from experiments.plan import lines, longest, pool


def test_the_grid_counts_in_eighths():
    lengths = [longest.grid(index) for index in range(200)]
    assert lengths[:10] == [8, 9, 10, 11, 12, 13, 14, 15, 16, 18] and lengths == sorted(set(lengths))
    for index in range(200):
        assert longest.position(longest.grid(index)) == index
        assert longest.position(longest.grid(index) + 0.5) == index


@pytest.mark.parametrize("start", [8, 1024, 100_000])
@pytest.mark.parametrize("power", [0.9, 1, 1.5, 2])
@pytest.mark.parametrize("refuses", [False, True])
def test_the_search_finds_the_last_that_fits(power, start, refuses):
    room, asked = 16e9, []

    def total(length):
        asked.append(length)
        needed = int(1e6 + 500 * length**power)
        return None if refuses and needed > room else needed

    found = longest.search(total, room, start)
    fits = [n for n in map(longest.grid, range(200)) if n <= longest.MOST and 1e6 + 500 * n**power <= room]
    assert found["length"] == fits[-1] and len(asked) == len(set(asked)) <= 12
    assert found["beyond"] is None or found["beyond"] == longest.grid(longest.position(fits[-1]) + 1)


def test_where_nothing_or_everything_fits():
    assert longest.search(lambda _: 10, 5, 1024)["length"] is None
    found = longest.search(lambda _: 1, 5, 1024)
    assert found["length"] == longest.MOST and found["beyond"] is None


def test_lengths_that_are_not_accepted_end_the_search_and_nothing_else():
    def ask(overrides):
        length = int(overrides[0].partition("=")[2])
        if length > 5000:
            raise UsageError("length: at most 5000")
        return {"memory": {name: {"total": length} for name in pool.PROGRAMS}}

    found = longest.of_target(ask, 10**9, 4096, shares=4)
    assert found["length"] == 4608 and found["beyond"] == 5120 and 5120 in found["refused"]
    assert lines.length(found) == "4,608 (longer is not accepted)"


def test_other_variants_leave_the_chosen_ones_fields():
    given = ["--config.attention.window_size=64", "--config.train.batch_size=4"]
    assert longest.overrides_of("window", "window", given) == given
    expected = ["--config.train.batch_size=4", "--config.attention.name=lsh"]
    assert longest.overrides_of("lsh", "window", given) == expected
