"""Law 3: a causal query sees nothing of what comes after it, at every phase of block, pool and bucket."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Mask
from tests.attention.cases import (
    LENGTH,
    Inputs,
    Result,
    cases,
    cotangents,
    evaluate,
    first_cases,
    forward,
    inputs,
)
from tests.attention.tolerances import assert_close

CAUSAL = pytest.mark.parametrize(
    "case", [case for case in cases() if case.variant.capabilities.causal], ids=str
)

# Row t of the batch is the experiment for position t.
EARLIER = np.tril(np.ones((LENGTH, LENGTH), bool))


def others(x):
    """Other tokens like them."""
    return jnp.asarray(np.random.default_rng(5).normal(size=x.shape), x.dtype)


def first_token(x):
    """All the same as token 0: its buckets and all pools fill with it."""
    return jnp.broadcast_to(x[:, :1], x.shape)


def far_away(x):
    """One direction, and much longer: they would win every softmax."""
    return jnp.broadcast_to(30 * x[:, 1:2], x.shape)


def opposite(x):
    """The tokens themselves, turned around."""
    return -x


@pytest.mark.parametrize("later", [others, first_token, far_away, opposite])
@CAUSAL
def test_law_3_later_tokens_change_no_earlier_output(case, later):
    given = a_row_for_each_position(inputs(case.variant))
    before = forward(case.variant, given, Mask(causal=True))
    after = forward(case.variant, given.where(EARLIER, given.over_tokens(later)), Mask(causal=True))
    for one, other in zip(after, before, strict=True):
        assert_close(one[EARLIER], other[EARLIER])


@CAUSAL
def test_law_3_gradients_reach_exactly_the_declared_pattern(case):
    gradients = gradients_of_each_position(case.variant).gradients
    touched = {name: (x != 0).any((2, 3)) for name, x in gradients.items() if name != "params"}
    for name, pattern in touched.items():
        assert not (pattern & ~EARLIER).any(), f"{name} of later tokens matters"
    if hasattr(case.statement, "allowed"):
        declared = case.statement.allowed(case.variant, Mask(causal=True), 1, LENGTH, LENGTH)[0]
        np.testing.assert_array_equal(touched["value"], declared)


@CAUSAL
def test_reach_is_how_far_back_one_layer_looks(case):
    """Values of tokens farther back have no gradient; one at that distance has, in an exact variant."""
    reach = case.variant.reach
    assert reach >= 0
    if reach >= LENGTH:
        pytest.skip("reaches back to every token")
    d_value = gradients_of_each_position(case.variant).gradients["value"]
    query, key = np.nonzero((d_value != 0).any((2, 3)))
    assert (query - key).max() <= reach
    assert not case.variant.capabilities.exact or (query - key).max() == reach


@pytest.mark.parametrize("case", first_cases(), ids=str)
def test_law_3_holds_while_dropping_out(case):
    if not case.variant.capabilities.causal or not hasattr(case.variant, "dropout_rate"):
        pytest.skip("not causal, or drops nothing")
    variant = dataclasses.replace(case.variant, dropout_rate=0.4)
    given = a_row_for_each_position(inputs(variant, rng=jax.random.key(3)))
    before, _ = forward(variant, given, Mask(causal=True))
    after, _ = forward(variant, given.where(EARLIER, given.over_tokens(others)), Mask(causal=True))
    assert_close(after[EARLIER], before[EARLIER])


def a_row_for_each_position(given: Inputs) -> Inputs:
    """The first row of the batch LENGTH times."""
    return given.over_tokens(lambda x: jnp.broadcast_to(x[:1], (LENGTH, *x.shape[1:])))


def gradients_of_each_position(variant) -> Result:
    """Row t of the batch has a loss of output and log-sum-exp at t alone."""
    given = a_row_for_each_position(inputs(variant))
    own = jnp.eye(LENGTH, dtype=bool)[:, :, None]
    d_output, d_lse = cotangents(given)
    return evaluate(
        variant, given, Mask(causal=True), jnp.where(own[..., None], d_output, 0), jnp.where(own, d_lse, 0)
    )
