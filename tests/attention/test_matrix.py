"""attention_matrix: the weights of any variant, read from its outputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import LSH, Dense, Full, Mask, Pooled, SoftmaxAttention, attention_matrix
from tests.attention import oracle
from tests.attention.cases import BATCH, LENGTH, NUM_HEADS, first_cases, forward, inputs, logit_scale
from tests.attention.masks import build, honours
from tests.attention.tolerances import assert_close

FIRST = pytest.mark.parametrize("case", first_cases(), ids=str)

matrix = jax.jit(attention_matrix, static_argnums=0)


def matrix_of(case, mask):
    given = inputs(case.variant, num_kv_heads=NUM_HEADS)
    rest = {"params": given.params, "rng": given.rng, "gates": given.gates}
    return given, matrix(case.variant, given.query, given.key, mask, **rest)


@FIRST
def test_it_takes_values_to_the_output(case):
    mask = Mask(causal=case.variant.capabilities.causal)
    given, weight = matrix_of(case, mask)
    assert weight.shape == (BATCH, NUM_HEADS, LENGTH, LENGTH)
    assert_close(jnp.einsum("BNTS,BSNV->BTNV", weight, given.value), forward(case.variant, given, mask)[0])


@FIRST
def test_rows_sum_to_one_or_to_zero_where_nothing_is_seen(case):
    """Those of sums that are no means to anything; a softmax knows by its log-sum-exp what sees nothing."""
    mask = build("holes", case.variant.capabilities.causal, BATCH, LENGTH, LENGTH)
    if not honours(case.variant, mask):
        return
    given, weight = matrix_of(case, mask)
    total = np.asarray(weight.sum(-1))
    if getattr(case.statement, "MEANS", not case.variant.unnormalised):
        sees = total > 0.5
        if isinstance(case.variant, SoftmaxAttention):
            sees = np.isfinite(forward(case.variant, given, mask)[1]).transpose(0, 2, 1)
        assert sees.any()
        assert not sees.all()
        assert_close(total, sees, dtype="float32")
        assert (weight >= 0).all()
    assert (jnp.moveaxis(weight, 3, 1)[~np.asarray(mask.key_valid)] == 0).all()


@FIRST
def test_causal_is_lower_triangular(case):
    if case.variant.capabilities.causal:
        assert (np.triu(matrix_of(case, Mask(causal=True))[1], 1) == 0).all()


def test_full_is_the_softmax():
    """Grouped queries, fewer queries than keys, and a length that the slices do not divide."""
    given = inputs(Full(), length=5, key_length=11)
    matrix = attention_matrix(Full(), given.query, given.key, Mask(causal=True))
    allowed = np.tril(np.ones((BATCH, 5, 11), bool), 6)
    expected = oracle.attend(given.query, given.key, given.value, allowed, logit_scale(Full())).weight
    assert_close(matrix, expected)


def test_the_worked_example():
    """Three tokens as queries, keys and values: softmax of [[2.08, 1.96, 1.88], ...] / sqrt(2)."""
    tokens = jnp.asarray([[1.2, 0.8], [0.9, 1.1], [0.7, 1.3]])[None, :, None]
    matrix = attention_matrix(Full(), tokens, tokens, Mask())[0, 0]
    expected = [[0.3588, 0.3296, 0.3115], [0.3209, 0.3348, 0.3444], [0.2966, 0.3368, 0.3666]]
    np.testing.assert_allclose(matrix, expected, atol=5e-5)
    expected = [[0.9453, 1.0547], [0.9274, 1.0726], [0.9156, 1.0844]]
    np.testing.assert_allclose(Full()(tokens, tokens, tokens, Mask())[0, :, 0], expected, atol=5e-5)


@pytest.mark.usefixtures("as_users_run")
def test_what_is_no_variant_is_named():
    given = inputs(Full(), length=3)
    wrong: Any = "full"
    with pytest.raises(TypeError, match=r"variant must be .* not str"):
        attention_matrix(wrong, given.query, given.key, Mask())


def test_no_keys_no_columns():
    given = inputs(Full(), length=3, key_length=0)
    assert attention_matrix(Full(), given.query, given.key, Mask()).shape == (BATCH, NUM_HEADS, 3, 0)


@pytest.mark.parametrize("variant", [Full(), Dense(), Pooled(pooling="learned"), LSH()], ids=lambda x: x.name)
def test_heads_without_width_weigh_all_alike(variant):
    """All logits are 0; lsh leaves out the query's own position."""
    given = inputs(variant, length=3, num_kv_heads=NUM_HEADS)
    query, key = given.query[..., :0], None if given.key is None else given.key[..., :0]
    sizes = {"num_heads": NUM_HEADS, "num_kv_heads": NUM_HEADS, "head_dim": 0, "model_dim": 0}
    params = variant.init(jax.random.key(0), **sizes, max_length=3)
    others = 1 - np.eye(3) if variant.capabilities.shared_key else np.ones((3, 3))
    expected = np.broadcast_to(others / others.sum(1), (BATCH, NUM_HEADS, 3, 3))
    assert_close(attention_matrix(variant, query, key, Mask(), params=params), expected)
