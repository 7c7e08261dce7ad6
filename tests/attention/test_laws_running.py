"""Laws 8 and 9: randomness, jit, vmap, and rows of a batch; and which derivatives there are."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask, Window
from tests.attention.cases import (
    BATCH,
    LENGTH,
    call,
    cases,
    first_cases,
    forward,
    inputs,
    run,
)
from tests.attention.masks import MASKS, build, honours
from tests.attention.tolerances import assert_close

ALL = pytest.mark.parametrize("case", cases(), ids=str)
FIRST = pytest.mark.parametrize("case", first_cases(), ids=str)
DROPPING = [case for case in first_cases() if hasattr(case.variant, "dropout_rate")]
RNGS = jax.random.key(1), jax.random.key(2)


def mask_of(case) -> Mask:
    return Mask(causal=case.variant.capabilities.causal)


@pytest.mark.parametrize("case", DROPPING, ids=str)
def test_law_8_same_rng_same_bits_another_rng_another_draw(case):
    variant = dataclasses.replace(case.variant, dropout_rate=0.3)
    first, again, other = (
        forward(variant, inputs(variant, rng=RNGS[i]), mask_of(case))[0] for i in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert abs(first - other).max() > 0.1


@pytest.mark.parametrize("case", DROPPING, ids=str)
def test_law_8_a_missing_rng_is_an_error(case):
    variant = dataclasses.replace(case.variant, dropout_rate=0.3)
    with pytest.raises(ValueError, match=rf"{variant.name}.*rng"):
        call(variant, inputs(variant), mask_of(case))


@ALL
def test_law_8_without_dropout_runs_repeat(case):
    """Without an rng nothing is drawn; with one, the same is drawn."""
    for rng in (None, RNGS[0]):
        given = inputs(case.variant, rng=rng)
        for one, again in zip(*(forward(case.variant, given, mask_of(case)) for _ in range(2)), strict=True):
            np.testing.assert_array_equal(one, again)


@FIRST
def test_law_9_jit_equals_eager(case):
    given = inputs(case.variant, length=9)
    for eager, compiled in zip(
        call(case.variant, given, mask_of(case)), forward(case.variant, given, mask_of(case)), strict=True
    ):
        assert_close(eager, compiled)


@FIRST
def test_law_9_vmap_equals_a_loop(case):
    """Over inputs and the most general mask that it honours, forward and backward."""
    causal = case.variant.capabilities.causal
    masks = [build(kind, causal, BATCH, LENGTH, LENGTH) for kind in MASKS]
    mask = max((mask for mask in masks if honours(case.variant, mask)), key=lambda mask: len(mask.given()))
    arrays = [{field: getattr(mask, field)[:, ::step] for field in mask.given()} for step in (1, -1)]
    given = [inputs(case.variant, seed=seed) for seed in range(2)]

    def one(given, arrays):
        return run(case.variant, given, Mask(causal, **arrays))

    mapped = jax.vmap(one)(*(jax.tree.map(lambda *x: jnp.stack(x), *both) for both in (given, arrays)))
    for i in range(2):
        jax.tree.map(assert_close, jax.tree.map(lambda x, i=i: x[i], mapped), one(given[i], arrays[i]))


@ALL
def test_law_9_rows_of_a_batch_do_not_see_each_other(case):
    """The first row replaced, forward and backward; and each row by itself."""
    given, other = inputs(case.variant), inputs(case.variant, seed=9)
    before = run(case.variant, given, mask_of(case))
    second = np.broadcast_to(np.arange(BATCH)[:, None] == 1, (BATCH, LENGTH))
    after = run(case.variant, given.where(second, other), mask_of(case))
    assert_close(after.output[1], before.output[1])
    assert_close(after.lse[1], before.lse[1])
    for name in set(before.gradients) - {"params"}:
        assert_close(after.gradients[name][1], before.gradients[name][1], what=name)
    assert abs(after.output[0] - before.output[0]).max() > 0.1


@FIRST
def test_law_9_a_row_by_itself_equals_the_row_in_a_batch(case):
    """Under a mask whose rows differ."""
    causal = case.variant.capabilities.causal
    given, mask = inputs(case.variant), build("holes", causal, BATCH, LENGTH, LENGTH)
    if not honours(case.variant, mask):
        pytest.skip("does not take this mask")
    together = forward(case.variant, given, mask)
    for row in range(BATCH):
        alone = given.over_tokens(lambda x, row=row: x[row : row + 1])
        own = jax.tree.map(lambda x, row=row: x[row : row + 1], mask)
        for one, of_all in zip(forward(case.variant, alone, own), together, strict=True):
            assert_close(one[0], of_all[row])


def loss_and_point(variant, dtype=jnp.float32):
    """A loss of the query that is not linear in it, and a query and a direction."""
    given, mask = inputs(variant, length=13, dtype=dtype), Mask(causal=variant.capabilities.causal)

    def loss(query):
        output, lse = call(variant, given._replace(query=query), mask)
        return (output**2).sum() + jnp.where(lse > -jnp.inf, lse, 0).sum()

    return loss, given.query, inputs(variant, seed=1, length=13, dtype=dtype).query


def along(loss, query, direction):
    """The Hessian's product with the direction, forward over reverse."""
    return jax.jvp(jax.grad(loss), (query,), (direction,))[1]


@FIRST
def test_second_derivatives_are_had_by_forward_mode_over_the_gradient(case):
    with jax.enable_x64(True):
        loss, query, direction = loss_and_point(case.variant, jnp.float64)
        gradient = jax.jit(jax.grad(loss))
        ahead, back = (gradient(query + step * direction) for step in (1e-5, -1e-5))
        product = jax.jit(along, static_argnums=0)(loss, query, direction)
        assert abs(product).max() > 0.1 or not ahead.any()  # what does not look at queries has no gradient
        np.testing.assert_allclose(product, (ahead - back) / 2e-5, atol=1e-7)


@FIRST
def test_forward_mode_is_refused_by_what_has_its_own_backward(case):
    loss, query, direction = loss_and_point(case.variant)
    own = "custom_vjp" in str(jax.make_jaxpr(loss)(query))
    for mode in (
        lambda: jax.jvp(loss, (query,), (direction,)),
        lambda: jax.linearize(loss, query)[1](direction),
        lambda: jax.jacfwd(loss)(query),
    ):
        try:
            jax.jit(mode).lower()
        except TypeError as refusal:
            assert own and "can't apply forward-mode autodiff (jvp) to a custom_vjp func" in str(refusal)
        else:
            assert not own or not jax.grad(loss)(query).any()  # of queries that nobody looks at


def test_a_gradient_of_a_gradient_needs_one_tile_for_each_block():
    def reverse(loss, query, direction):
        return jax.grad(lambda query: (jax.grad(loss)(query) * direction).sum())(query)

    for one_tile in (Window(window_size=5, query_block=8), Full(query_block=8, key_block=16)):
        point = loss_and_point(one_tile)
        assert_close(*(jax.jit(product, static_argnums=0)(*point) for product in (reverse, along)))
    loss, query, direction = loss_and_point(Full(query_block=8, key_block=8))
    with pytest.raises(ValueError, match=r"Reverse-mode differentiation does not work for lax\.while_loop"):
        jax.eval_shape(lambda: reverse(loss, query, direction))
