"""Laws 6 and 7: any length, huge logits, and bfloat16."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Mask, SoftmaxAttention
from tests.attention.cases import BATCH, NUM_HEADS, cases, evaluate, first_cases, forward, inputs, run
from tests.attention.references import by_reference, is_exact
from tests.attention.tolerances import assert_close

ALL = pytest.mark.parametrize("case", cases(), ids=str)
FIRST = pytest.mark.parametrize("case", first_cases(), ids=str)


@pytest.mark.parametrize("length", [1, 7, 8, 17])
@FIRST
def test_law_6_any_length(case, length):
    """One, a block of 8 less and more one, two of them, a prime; causal where it can."""
    mask = Mask(causal=case.variant.capabilities.causal)
    given = inputs(case.variant, length=length)
    output, lse = forward(case.variant, given, mask)
    expected, expected_lse = by_reference(case, given, mask)
    assert_close(output, expected, what="output")
    assert_close(lse, expected_lse, what="lse")


@FIRST
def test_law_6_nothing_gives_nothing(case):
    """Length 0, forward and backward; and a batch of no rows."""
    mask = Mask(causal=case.variant.capabilities.causal)
    for given in (inputs(case.variant, length=0), inputs(case.variant, batch=0, length=3)):
        result = run(case.variant, given, mask)
        assert result.output.shape == (*given.query.shape[:3], given.value.shape[3])
        assert result.lse.shape == given.query.shape[:3]
        assert result.gradients["value"].shape == given.value.shape


@FIRST
def test_law_6_no_keys_at_all(case):
    """Queries without a single key see nothing."""
    if not case.variant.capabilities.cross_attention:
        pytest.skip("takes no keys of another length")
    result = run(case.variant, inputs(case.variant, length=5, key_length=0), Mask())
    assert (result.output == 0).all()
    assert (result.lse == -np.inf).all() or not isinstance(case.variant, SoftmaxAttention)
    assert (result.gradients["query"] == 0).all()


@ALL
def test_law_7_huge_logits_stay_finite(case):
    """Logits of some 1e4: float32 knows them to 1e-3, so the output is as near the reference as that."""
    given = inputs(case.variant)
    size = 1e4 if case.variant.capabilities.shared_key else 1e2  # normalised keys have length one
    given = given.over_tokens(lambda x: size * x)._replace(value=given.value)
    mask = Mask(causal=case.variant.capabilities.causal)
    result = run(case.variant, given, mask)
    output, lse = by_reference(case, given, mask)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result._replace(lse=None)))
    assert not np.isnan(result.lse).any() if result.lse is not None else lse is None  # -inf: nothing is seen
    assert_close(result.output, output, what="output", loosen=300)
    assert_close(result.lse, lse, what="lse", loosen=300)


@FIRST
def test_law_7_bfloat16_is_near_the_reference(case):
    """Sums are float32: an exact lse is far better than bfloat16, others round keys of their own making."""
    given = inputs(case.variant, dtype=jnp.bfloat16)
    mask = Mask(causal=case.variant.capabilities.causal)
    result = run(case.variant, given, mask)
    assert result.output.dtype == jnp.bfloat16
    assert result.lse.dtype == jnp.float32
    assert all(x.dtype == jnp.bfloat16 for name, x in result.gradients.items() if name != "params")
    wide = given.over_tokens(lambda x: x.astype(jnp.float32))
    output, lse = by_reference(case, wide, mask)
    assert_close(result.output, output, what="output")
    assert_close(result.lse, lse, what="lse", loosen=30 if is_exact(case) else 300)
    expected = run(case.variant, wide, mask).gradients
    for name in set(expected) - {"params"}:
        assert_close(result.gradients[name], expected[name], what=f"gradient of {name}", loosen=2)


@FIRST
def test_law_7_bfloat16_sums_do_not_stop_at_256(case):
    """In bfloat16 256 + 1 is 256. At its limit every query adds 600 equal terms."""
    length = 600
    limit = case.variant.limit(length).hyperparameters
    if limit is None or not issubclass(type(case.variant), SoftmaxAttention):
        pytest.skip("has no limit, or no softmax")
    variant = dataclasses.replace(case.variant, **limit)
    given = inputs(variant, batch=1, length=length, dtype=jnp.bfloat16)
    given = given.over_tokens(jnp.zeros_like)._replace(value=jnp.ones_like(given.value))
    output, lse = forward(variant, given, Mask(causal=False))
    seen = length - 1 if variant.capabilities.shared_key else length
    assert_close(output, np.ones(output.shape), what="output")
    assert_close(lse, np.full(lse.shape, np.log(seen)), what="lse")


@FIRST
def test_float64_is_kept(case):
    """Wider than float32 in, wider sums and wider out."""
    with jax.enable_x64(True):
        given = inputs(case.variant, length=9, dtype=jnp.float64)
        mask = Mask(causal=case.variant.capabilities.causal)
        output, lse = forward(case.variant, given, mask)
        assert output.dtype == jnp.float64
        expected, expected_lse = by_reference(case, given, mask)
        assert_close(output, expected)
        assert_close(lse, expected_lse, dtype="float64")
        assert (
            evaluate(case.variant, given, mask, jnp.ones_like(output), lse).gradients["value"].dtype
            == output.dtype
        )
    assert output.shape[:3:2] == (BATCH, NUM_HEADS)
