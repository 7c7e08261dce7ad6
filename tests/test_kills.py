"""A few of the kills at random moments that `python -m tests.kills` makes by the hundred."""

import pytest

from tests import kills


@pytest.mark.slow
def test_three_runs_killed_at_random_end_as_if_nothing_had_happened():
    found = kills.campaign(3, seed=1)
    assert [result for result in found if not result["same"]] == []
    assert {result["at_once"] for result in found} == set(kills.AT_ONCE)
