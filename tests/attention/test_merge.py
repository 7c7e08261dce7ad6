"""merge: parts of one softmax, put together by their log-sum-exps."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask, merge
from tests.attention import oracle
from tests.attention.cases import BATCH, LENGTH, call, cotangents, forward, inputs, logit_scale
from tests.attention.tolerances import assert_close

CUTS = [[0, 20, 37], [0, 1, 2, 30, 37], [0, 0, 37]]


def in_parts(given, cuts, mask=Mask()):  # noqa: B008 (frozen)
    """Attention to keys from each cut to the next, merged; default positions are of no use here."""
    pieces = [slice(*ends) for ends in itertools.pairwise(cuts)]
    return merge(
        [call(Full(), given._replace(key=given.key[:, x], value=given.value[:, x]), mask) for x in pieces]
    )


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_parts_of_the_keys_make_the_whole(cuts):
    """Values and gradients, also of the merged log-sum-exp; a part without keys weighs nothing."""
    given, losses = inputs(Full()), cotangents(inputs(Full()))
    merged, pull = jax.vjp(
        lambda *x: in_parts(given._replace(query=x[0], key=x[1], value=x[2]), cuts), *given[:3]
    )
    everything = np.ones((BATCH, LENGTH, LENGTH), bool)
    operands = (*given[:3], everything, logit_scale(Full()))
    for one, expected in zip(merged, oracle.attend(*operands), strict=False):
        assert_close(one, expected)
    for gradient, expected in zip(pull(losses), oracle.gradients(*operands, *losses), strict=True):
        assert_close(gradient, expected)


def test_two_numbers_by_hand():
    """Weights 3 : 1, so 3/4 of 8 and 1/4 of 4; the log-sum-exp is log(3 + 1)."""
    parts = [(jnp.asarray([[8.0]]), jnp.log(jnp.asarray([3.0]))), (jnp.asarray([[4.0]]), jnp.asarray([0.0]))]
    output, lse = merge(parts)
    np.testing.assert_allclose(output, [[7.0]], rtol=1e-6)
    np.testing.assert_allclose(lse, [np.log(4.0)], rtol=1e-6)


def test_merging_is_associative_and_has_a_neutral_part():
    parts = [forward(Full(), inputs(Full(), seed=seed), Mask()) for seed in range(3)]
    nothing = jnp.zeros_like(parts[0][0]), jnp.full_like(parts[0][1], -jnp.inf)
    at_once = merge(parts)
    for other in (merge([merge(parts[:2]), parts[2]]), merge([nothing, *parts]), merge([*parts, nothing])):
        for one, expected in zip(other, at_once, strict=True):
            assert_close(one, expected)


def test_far_apart_log_sum_exps_neither_overflow_nor_vanish():
    """A part that outweighs the other by e^2000 is the answer."""
    value = jnp.asarray([[1.0]]), jnp.asarray([[2.0]])
    for shift in (-1e4, 0.0, 1e4):
        output, lse = merge([(value[0], jnp.asarray([shift])), (value[1], jnp.asarray([shift - 2000]))])
        assert output == 1
        assert lse == shift


def test_where_all_see_nothing_gradients_are_zero():
    parts = [(jnp.ones((1, 2)), jnp.full(1, -jnp.inf)), (jnp.ones((1, 2)), jnp.full(1, -jnp.inf))]
    (output, lse), pull = jax.vjp(merge, parts)
    assert (output == 0).all()
    assert (lse == -jnp.inf).all()
    assert all((x == 0).all() for x in jax.tree.leaves(pull((output + 1, jnp.ones_like(lse)))))


def test_sums_are_wide_and_the_output_is_as_given():
    parts = [(jnp.ones((1, 2), jnp.bfloat16), jnp.zeros(1))] * 600
    output, lse = merge(parts)
    assert output.dtype == jnp.bfloat16
    assert lse.dtype == jnp.float32
    np.testing.assert_allclose(output.astype(jnp.float32), 1)
    np.testing.assert_allclose(lse, np.log(600), rtol=1e-6)


ONE = jnp.ones((2, 3)), jnp.zeros(2)
WRONG = (
    ([], ValueError, "parts must be a list of pairs (output, lse), at least one; it is empty"),
    (None, TypeError, "parts must be a list of pairs (output, lse), not NoneType"),
    (iter([ONE]), TypeError, "not list_iterator"),
    (ONE, TypeError, "parts[0] is no pair: ArrayImpl"),
    ([ONE, (*ONE, 1)], TypeError, "parts[1] is no pair: tuple"),
    ([([1.0], 0.0)], TypeError, "parts[0][0] must be a jax.Array or numpy.ndarray, not list"),
    ([(ONE[0], None)], TypeError, "parts[0][1] must be a jax.Array or numpy.ndarray, not NoneType"),
    ([(ONE[0].astype(int), ONE[1])], ValueError, "parts[0][0] must be floating point, got int32"),
    ([(ONE[0], ONE[0])], ValueError, "parts[0][1] has shape (2, 3); beside the output of parts[0] it must"),
    ([ONE, (ONE[0][:, :1], ONE[1])], ValueError, "parts[1][0] has shape (2, 1)"),
)  # fmt: skip


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("parts", "error", "says"), WRONG, ids=[says for _, _, says in WRONG])
def test_what_cannot_be_merged_is_named(parts, error, says):
    with pytest.raises(error, match=re.escape(says)):
        merge(parts)
