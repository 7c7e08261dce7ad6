"""Dropout on weights: what is drawn depends on (rng, row, head, query, key) alone, and gradients know it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask, attention_matrix
from tests.attention.cases import (
    BATCH,
    LENGTH,
    NUM_HEADS,
    cotangents,
    evaluate,
    first_cases,
    forward,
    inputs,
)
from tests.attention.tolerances import assert_close

RATE = 0.3
RNG = jax.random.key(4)
DROPPING = [case for case in first_cases() if hasattr(case.variant, "dropout_rate")]
EACH = pytest.mark.parametrize("case", DROPPING, ids=str)

matrix = jax.jit(attention_matrix, static_argnums=0)


def dropping(case):
    return dataclasses.replace(case.variant, dropout_rate=RATE)


def mask_of(case) -> Mask:
    return Mask(causal=case.variant.capabilities.causal)


def kept_by(variant, rng=RNG, batch: int = BATCH, length: int = LENGTH) -> np.ndarray:
    """Which weights B N T S a variant at its limit keeps, all the others being zero, and scales."""
    variant = dataclasses.replace(variant, **variant.limit(length).hyperparameters)
    given = inputs(variant, batch=batch, length=length, num_kv_heads=NUM_HEADS)
    dropped, whole = (
        matrix(x, given.query, given.key, Mask(), params=given.params, rng=rng)
        for x in (dataclasses.replace(variant, dropout_rate=RATE), variant)
    )
    ratio = np.asarray(dropped / whole)
    if variant.capabilities.shared_key:
        ratio = ratio[..., ~np.eye(length, dtype=bool)].reshape(*ratio.shape[:3], length - 1)
    kept = ratio > 0
    np.testing.assert_allclose(ratio, kept / (1 - RATE), rtol=1e-4)
    return kept


@EACH
def test_kept_weights_are_scaled_and_as_many_as_asked_for(case):
    """Also independent of their neighbours along every axis: both kept as often as for fair draws."""
    if case.variant.limit(LENGTH).hyperparameters is None:
        return
    kept = kept_by(case.variant)
    assert kept.mean() == pytest.approx(1 - RATE, abs=5 * np.sqrt(RATE * (1 - RATE) / kept.size))
    for axis in range(kept.ndim):
        first, second = (
            np.take(kept, range(*ends), axis) for ends in ((0, kept.shape[axis] - 1), (1, kept.shape[axis]))
        )
        both = (1 - RATE) ** 2
        assert (first & second).mean() == pytest.approx(both, abs=5 * np.sqrt(both * (1 - both) / first.size))


@pytest.mark.parametrize("name", ["dense", "window"])
def test_exact_keys_share_their_bits_over_variants(name):
    """So that variants can be compared bit by bit where they are the same."""
    case = next(case for case in DROPPING if case.variant.name == name)
    np.testing.assert_array_equal(kept_by(case.variant), kept_by(Full()))


@EACH
def test_bits_do_not_depend_on_block_sizes(case):
    fields = {field.name for field in dataclasses.fields(case.variant)} & {"query_block", "key_block"}
    variants = {dataclasses.replace(dropping(case), **dict.fromkeys(fields, x)) for x in (8, 5)}
    outputs = [forward(variant, inputs(variant, rng=RNG), mask_of(case))[0] for variant in variants]
    for output in outputs[1:]:
        assert_close(output, outputs[0])


@EACH
def test_bits_do_not_depend_on_the_batch_or_on_what_follows(case):
    """The first row alone, and its beginning alone if causal."""
    variant = dropping(case)
    given = inputs(variant, rng=RNG)
    output, _ = forward(variant, given, mask_of(case))
    row, _ = forward(variant, given.over_tokens(lambda x: x[:1]), mask_of(case))
    assert_close(row[0], output[0])
    if mask_of(case).causal:
        beginning, _ = forward(variant, given.over_tokens(lambda x: x[:, :33]), mask_of(case))
        assert_close(beginning, output[:, :33])


@EACH
def test_the_log_sum_exp_is_taken_before_dropout(case):
    given = inputs(case.variant, rng=RNG)
    assert_close(
        forward(dropping(case), given, mask_of(case))[1], forward(case.variant, given, mask_of(case))[1]
    )


@EACH
def test_gradients_are_those_of_the_weights_that_were_kept(case):
    """Slopes in float64 equal differences of the forward pass with the same bits."""
    variant, step = dropping(case), 1e-6
    with jax.enable_x64(True):
        given = inputs(variant, length=17, dtype=jnp.float64, rng=RNG)
        d_output, d_lse = (x.astype(jnp.float64) for x in cotangents(given))
        gradients = evaluate(variant, given, mask_of(case), d_output, d_lse).gradients

        def loss(name, direction, distance):
            moved = given._replace(**{name: getattr(given, name) + distance * direction})
            output, lse = forward(variant, moved, mask_of(case))
            return (d_output * output).sum() + jnp.where(jnp.isfinite(lse), d_lse * lse, 0).sum()

        for name in set(gradients) - {"params"}:
            direction = inputs(variant, seed=8, length=17, dtype=jnp.float64)._asdict()[name]
            expected = (loss(name, direction, step) - loss(name, direction, -step)) / (2 * step)
            np.testing.assert_allclose((gradients[name] * direction).sum(), expected, rtol=1e-5, err_msg=name)
