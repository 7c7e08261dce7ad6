"""Laws 4 and 5: rows that see nothing, padding anywhere, and segments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Mask, SoftmaxAttention, merge
from tests.attention.cases import (
    BATCH,
    LENGTH,
    Inputs,
    Result,
    call,
    cases,
    cotangents,
    evaluate,
    first_cases,
    forward,
    inputs,
    run,
)
from tests.attention.masks import build, honours
from tests.attention.tolerances import assert_close

CAUSAL = pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
ALL = pytest.mark.parametrize("case", cases(), ids=str)
FIRST = pytest.mark.parametrize("case", first_cases(), ids=str)
SHORTER = 33  # real tokens among LENGTH
SHORTEST = 16  # so few that whatever comes from the length, blocks, pools or buckets, comes out otherwise


@CAUSAL
@ALL
def test_law_4_a_row_that_sees_nothing_is_zero(case, causal):
    """Padded queries, and the second row of the batch, where every key is padding."""
    query_valid, key_valid = np.ones((2, BATCH, LENGTH), bool)
    query_valid[0, ::3] = False
    key_valid[1] = False
    mask = Mask(causal, jnp.asarray(query_valid), jnp.asarray(key_valid))
    if not honours(case.variant, mask):
        pytest.skip("does not take this mask")
    result = run(case.variant, inputs(case.variant), mask)
    nothing = ~query_valid | ~key_valid.any(1, keepdims=True)
    assert (result.output[nothing] == 0).all()
    assert (result.lse[nothing] == -np.inf).all() or not isinstance(case.variant, SoftmaxAttention)
    for leaf in jax.tree.leaves(result):
        assert not np.isnan(leaf).any()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result.gradients))
    assert (result.gradients["value"][1] == 0).all()
    if case.variant.capabilities.shared_key:  # what is padding as a query may be a key still
        nothing = nothing & ~key_valid
    else:
        assert (result.gradients["key"][~key_valid] == 0).all()
    assert nothing.any()
    assert (result.gradients["query"][nothing] == 0).all()


@FIRST
def test_law_4_through_a_merge(case):
    """A part that sees nothing weighs nothing, and where both see nothing all is zero; nothing is NaN."""
    mask = build("appended", True, BATCH, LENGTH, LENGTH)
    nothing = Mask(True, mask.query_valid, jnp.zeros((BATCH, LENGTH), bool))
    if not isinstance(case.variant, SoftmaxAttention) or not honours(case.variant, mask):
        pytest.skip("no softmax, or does not take this mask")
    given = inputs(case.variant)
    once = run(case.variant, given, mask)
    for masks in ((mask, nothing), (nothing, mask)):
        for one, expected in zip(merged(case.variant, given, masks), once, strict=True):
            jax.tree.map(assert_close, one, expected)
    output, lse, gradients = merged(case.variant, given, (nothing, nothing))
    assert (output == 0).all()
    assert (lse == -np.inf).all()
    assert all((x == 0).all() for x in jax.tree.leaves(gradients))


@functools.partial(jax.jit, static_argnums=0)
def merged(variant, given: Inputs, masks):
    """One evaluation of the merge of what each of `masks` lets it see."""

    def of(trained):
        return merge([call(variant, given._replace(**trained), mask) for mask in masks])

    trained = {name: x for name, x in given._replace(rng=None)._asdict().items() if x is not None}
    result, pull = jax.vjp(of, trained)
    return Result(*result, pull(cotangents(given))[0])


@CAUSAL
@ALL
def test_law_5_appended_padding_changes_nothing(case, causal):
    """Whatever stands in it, NaN included: values and gradients of the real tokens are what they were."""
    real = np.arange(LENGTH) < SHORTEST
    compare_with_compacted(case, causal, np.broadcast_to(real, (BATCH, LENGTH)), positions=False)


@CAUSAL
@ALL
def test_law_5_padding_anywhere_changes_nothing_where_declared(case, causal):
    """Front, interior and end; real tokens stand where they would without it, if positions can be given."""
    real = scattered()
    if case.variant.capabilities.interior_padding:
        compare_with_compacted(case, causal, real, positions=case.variant.capabilities.explicit_positions)
    else:
        difference = compare_with_compacted(case, causal, real, positions=False, same=False)
        assert difference > 0.05


def scattered():
    """SHORTER real tokens in each row: row 0 begins with padding, row 1 has holes."""
    real = np.ones((BATCH, LENGTH), bool)
    real[0, : LENGTH - SHORTER] = False
    real[1, [3, 4, 17, 30]] = False
    return real


def compare_with_compacted(case, causal, real, positions: bool, same: bool = True) -> float:
    """Real tokens among padding against the same tokens without it: the difference of their outputs.

    It is none, and gradients are the `same`, unless that is not asked for. Padding never has a gradient.
    """
    given = inputs(case.variant)
    position = jnp.asarray(real.cumsum(1) - 1) if positions else None
    mask = Mask.for_self(causal=causal, valid=jnp.asarray(real), positions=position)
    if not honours(case.variant, mask):
        pytest.skip("refused")
    padded = run(case.variant, given.where(real, given.over_tokens(lambda x: x * jnp.nan)), mask)

    def compact(x):
        return x[real].reshape(BATCH, -1, *x.shape[2:])

    compacted = given.over_tokens(compact)
    expected = evaluate(case.variant, compacted, Mask(causal), *(compact(x) for x in cotangents(given)))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((padded.output, padded.gradients)))
    assert (padded.output[~real] == 0).all()
    for name in set(padded.gradients) - {"params"}:
        assert (padded.gradients[name][~real] == 0).all(), f"gradient of {name} of padding"
    if same:
        compacted = padded._replace(
            output=compact(padded.output), lse=compact(padded.lse),
            gradients={name: x if name == "params" else compact(x) for name, x in padded.gradients.items()},
        )  # fmt: skip
        jax.tree.map(assert_close, compacted, expected)
    return float(abs(compact(padded.output) - expected.output).max())


@CAUSAL
@ALL
def test_law_5_another_segment_changes_nothing(case, causal):
    """Interleaved segments: every token of one is replaced."""
    segment = np.random.default_rng(0).integers(0, 3, (BATCH, LENGTH))
    mask = Mask.for_self(causal=causal, segments=jnp.asarray(segment))
    if not honours(case.variant, mask):
        pytest.skip("does not take segments")
    given, other = inputs(case.variant), inputs(case.variant, seed=9)
    changed = given.where(segment != 1, other.over_tokens(lambda x: 5 * x))
    after = forward(case.variant, changed, mask)
    for one, before in zip(after, forward(case.variant, given, mask), strict=True):
        assert_close(one[segment != 1], before[segment != 1])
    outputs = after[0] - forward(case.variant, given, mask)[0]
    assert np.nanmax(abs(outputs)[segment == 1]) > 0.1


@CAUSAL
@FIRST
def test_law_5_packed_equals_separate(case, causal):
    """Two documents in one row against each in a row of its own."""
    segment = (np.arange(LENGTH) >= SHORTER).astype(np.int32)[None]
    mask = Mask.for_self(causal=causal, segments=jnp.asarray(segment))
    if not honours(case.variant, mask):
        pytest.skip("does not take segments")
    given = inputs(case.variant)
    packed = run(case.variant, given, mask)
    for piece in (slice(SHORTER), slice(SHORTER, None)):
        alone = given.over_tokens(lambda x, piece=piece: x[:, piece])
        separate = evaluate(case.variant, alone, Mask(causal), *(x[:, piece] for x in cotangents(given)))
        assert_close(packed.output[:, piece], separate.output, what="output")
        assert_close(packed.lse[:, piece], separate.lse, what="lse")
        for name in set(packed.gradients) - {"params"}:
            assert_close(
                packed.gradients[name][:, piece], separate.gradients[name], what=f"gradient of {name}"
            )
