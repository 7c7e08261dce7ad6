"""A few of the kills at random moments that `python -m tests.kills` makes by the hundred."""

import signal

import pytest

from tests import kills


@pytest.mark.campaign
def test_four_runs_killed_at_random_end_as_if_nothing_had_happened():
    found = kills.campaign(4, seed=1)
    assert [result for result in found if not result["same"]] == []
    assert {result["at_once"] for result in found} == set(kills.AT_ONCE)


@pytest.mark.parametrize(
    ("number", "place", "codes", "right"),
    [
        (signal.SIGKILL, "training", [-9, 0], True),
        (signal.SIGKILL, "training", [1, 0], False),
        (signal.SIGTERM, "training", [75, 0], True),
        (signal.SIGTERM, "training", [130, 0], False),
        (signal.SIGTERM, "training", [-15, 0], False),
        (signal.SIGTERM, "starting", [-15, 0], True),
        (signal.SIGTERM, "ended", [-15, 0], True),
        (signal.SIGINT, "saving", [130, 0], True),
        (signal.SIGINT, "saving", [130, 75, 0], False),
        (signal.SIGINT, "saving", [130, 75], False),
        (signal.SIGINT, "saving", [0], False),
    ],
)
def test_the_exit_codes_of_a_trial_are_those_of_its_signal(number, place, codes, right):
    result = {"where": place, "codes": codes, "outcome": ({}, {})}
    assert kills.passed(result, number, ({}, {})) == right
    assert not kills.passed(result, number, ({}, {"seed-0": []}))


def test_trials_that_came_late_are_counted_and_not_for_ever():
    codes = iter([[0], [0], [-9, 0]])
    assert kills.in_time(lambda: {"codes": next(codes)}) == {"codes": [-9, 0], "late": 2}
    assert kills.in_time(lambda: {"codes": [0]}) == {"codes": [0], "late": kills.MOST_LATE}
    found = [{"where": "training", "signal": "SIGKILL", "same": True, "late": late} for late in (2, 1)]
    assert "3 more had ended before the signal came" in kills.page(found, seed=0, origin="here")


def test_what_differs_is_named():
    one = ({"speed": {"n": 1}, "seeds": [0]}, {"seed-0": [1]})
    other = ({"speed": {"n": 1}, "seeds": [1]}, {})
    assert kills.differing(one, other) == [".0.seeds", ".1.seed-0"]
    assert kills.differing(one, one) == []
