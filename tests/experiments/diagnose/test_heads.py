"""Numbers of heads, against those worked out by hand."""

import math

import numpy as np
import pytest

from experiments.diagnose import heads
from experiments.diagnoses import LEAST_KEYS

LENGTH = 24


def causal(weights):
    """Rows of T T, of one head, normalised over what is not ahead."""
    weights = np.tril(weights)
    return weights / weights.sum(-1, keepdims=True)


def previous():
    """Nearly all on the token before."""
    return causal(np.eye(LENGTH, k=-1) * 99 + 1 / LENGTH)


def of(own, uniform=None):
    """Statistics of a list of heads T T, one sequence, beside what each sees, all that is not ahead."""
    every = causal(np.ones_like(own[0])) if uniform is None else uniform
    return heads.statistics(np.stack(own)[None], np.stack([every] * len(own))[None])


def test_a_uniform_head():
    own = of([causal(np.ones((LENGTH, LENGTH)))])
    assert own["evenness"] == [pytest.approx(1)] and own["from_uniform"] == [pytest.approx(0, abs=1e-12)]
    assert own["entropy"] == [pytest.approx(np.mean([math.log(t + 1) for t in range(LENGTH)]))]
    assert own["distance"] == [pytest.approx(np.mean([t / 2 for t in range(LENGTH)]))]
    assert own["on_first"] == [pytest.approx(np.mean([1 / (t + 1) for t in range(LENGTH)]))]
    assert own["nearest"] == own["from_nearest"] == [None]


def test_a_head_that_looks_one_back():
    own = of([np.eye(LENGTH, k=-1), causal(np.ones((LENGTH, LENGTH)))])
    assert own["distance"][0] == own["reach"][0] == 1
    assert own["entropy"][0] == own["evenness"][0] == 0
    # All weight but what a uniform head has there, in rows of 8 keys and more.
    expected = np.mean([1 - 1 / n for n in range(LEAST_KEYS, LENGTH + 1)])
    assert own["from_uniform"][0] == pytest.approx(expected)


def test_reach_holds_nine_tenths_of_the_weight():
    far = np.zeros((LENGTH, LENGTH))
    for t in range(LENGTH):
        far[t, t], far[t, max(t - 10, 0)] = 0.8, far[t, max(t - 10, 0)] + 0.2
    assert of([far])["reach"] == [10]
    near = 0.95 * np.eye(LENGTH) + 0.05 * np.eye(LENGTH)[0]
    assert of([near])["reach"] == [0]


def test_heads_that_attend_alike():
    own = of([previous(), causal(np.ones((LENGTH, LENGTH))), previous()])
    assert own["nearest"] == [2, 0, 0] and own["from_nearest"][0] == 0 and own["from_nearest"][1] > 0.5


def test_signs_and_sizes_of_rows_do_not_matter():
    """Weights of a linear variant need not be positive, nor sum to 1."""
    for name, values in of([-3 * previous()]).items():
        assert values == pytest.approx(of([previous()])[name])


def test_a_head_is_held_against_all_that_it_sees():
    """One whose small weights are 0 in float32 is not taken for one that sees little."""
    assert of([np.eye(LENGTH)])["from_uniform"][0] > 0.8
    assert heads.statistics(np.eye(LENGTH)[None, None])["from_uniform"] == [None]  # by itself it sees one key


def test_each_head_has_its_own_uniform_row():
    """As where a hash decides what it sees: even over half of the keys is uniform."""
    half = causal(np.ones((LENGTH, LENGTH)) * (np.arange(LENGTH) % 2 == 0))[None, None]
    for own in (heads.statistics(half, half), heads.statistics(half)):
        assert own["from_uniform"] == [pytest.approx(0)] and own["evenness"] == [pytest.approx(1)]


def test_weights_that_are_not_finite_are_no_numbers():
    broken = previous()
    broken[9, 3] = np.nan
    own = of([broken, previous()])
    assert all(values[0] is None for values in own.values())
    assert own["entropy"][1] is not None and own["from_nearest"][1] is None


def test_few_keys_tell_nothing_of_how_a_head_spreads():
    own = of([causal(np.ones((5, 5)))])
    assert own["evenness"] == own["from_uniform"] == [None]
    assert own["entropy"][0] > 0 and own["distance"][0] > 0


def test_rows_that_see_nothing_are_left_out():
    """As padded ones do."""
    padded, even = previous(), causal(np.ones((LENGTH, LENGTH)))
    for own in (padded, even):
        own[16:], own[:, 16:] = 0, 0
    short = of([previous()[:16, :16]])
    for name, values in of([padded], even).items():
        assert values == pytest.approx(short[name])
    nothing = of([np.zeros((LENGTH, LENGTH))], np.zeros((LENGTH, LENGTH)))
    assert nothing.pop("entropy") == [0] and all(value == [None] for value in nothing.values())


def test_cosines():
    one, other = np.array([[1.0, 0], [1, 1], [0, 0]]), np.array([[0.0, 2], [2, 2], [1, 0]])
    assert heads.cosines(one, other) == pytest.approx([0, 1, 0])
