"""Law 10: memory grows as claimed, told by the compiler without running anything; so does the FLOP count."""

import re

import jax
import numpy as np
import pytest

import attention
from attention import Mask, SoftmaxAttention
from tests.attention.cases import HEAD_DIM, NUM_HEADS, VALUE_DIM, cotangents, evaluate, first_cases, inputs
from tests.attention.masks import build, honours

# At their defaults: blocks and hyperparameters that do not grow with the length.
FIRST = pytest.mark.parametrize("case", first_cases(), ids=str)
NAMES = pytest.mark.parametrize("name", attention.names())
LINEAR = 1.15


@NAMES
def test_law_10_memory_grows_as_claimed(name):
    check_growth(name, [4096, 32768], "plain")


@pytest.mark.campaign
@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("kind", ["packed", "placed"])
@NAMES
def test_law_10_memory_grows_as_claimed_under_masks(name, kind):
    """From so long on that arrays of one entry for each pair of blocks would show."""
    variant = attention.make(name)
    if honours(variant, build(kind, variant.capabilities.causal, 1, 8, 8)):
        check_growth(name, [16384, 65536], kind)


@pytest.mark.campaign
@pytest.mark.usefixtures("as_users_run")  # lowering puts descriptions of arrays into the mask
@pytest.mark.parametrize("kind", ["plain", "appended", "packed", "placed"])
@NAMES
def test_law_10_memory_grows_as_claimed_at_more_lengths_and_masks(name, kind):
    variant = attention.make(name)
    if honours(variant, build(kind, variant.capabilities.causal, 1, 8, 8)):
        check_growth(name, [4096, 8192, 16384, 32768], kind)


def check_growth(name: str, lengths: list[int], kind: str) -> None:
    variant = attention.make(name)
    exponent = fitted_exponent(lengths, [temporaries(variant, length, kind) for length in lengths])
    if "T^2" in variant.capabilities.memory:
        assert exponent > 1.85
    else:
        assert exponent <= LINEAR


def temporaries(variant, length: int, kind: str) -> int:
    """Bytes that the compiled forward and backward needs besides arguments and outputs."""
    given = jax.eval_shape(lambda: inputs(variant, batch=1, length=length))
    mask = build(kind, variant.capabilities.causal, 1, length, length)
    loss = jax.eval_shape(lambda: cotangents(inputs(variant, batch=1, length=length)))
    analysis = evaluate.lower(variant, given, mask, *loss).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def fitted_exponent(lengths, amounts) -> float:
    """The slope of log amount against log length; of nothing at all, 0."""
    return float(np.polyfit(np.log(lengths), np.log(np.maximum(amounts, 1)), 1)[0])


def flops(variant, length: int, causal: bool, batch: int = 1):
    return variant.flops(
        batch=batch, query_length=length, key_length=length, num_heads=NUM_HEADS, num_kv_heads=NUM_HEADS,
        head_dim=HEAD_DIM, value_dim=VALUE_DIM, causal=causal,
    )  # fmt: skip


@FIRST
def test_law_10_flops_grow_as_claimed(case):
    """T^2 in the claim: quadratic. One T: linear. T times T over something: quadratic, but late."""
    claim = case.variant.capabilities.time
    lengths = [16384, 32768]
    counts = [flops(case.variant, length, case.variant.capabilities.causal) for length in lengths]
    for part in ("forward", "backward"):
        exponent = fitted_exponent(lengths, [getattr(count, part) for count in counts])
        if "T^2" in claim:
            assert exponent > 1.9
        elif len(re.findall(r"\bT\b", claim)) == 1:
            assert exponent < LINEAR
        else:
            early = [getattr(flops(case.variant, x, True), part) for x in (64, 128)]
            assert fitted_exponent([64, 128], early) < 1.6
            assert exponent <= 2
            assert exponent > 1.6 or part == "backward"  # what only a choice needs has no gradient


@FIRST
def test_flops_scale_with_the_batch_and_never_shrink_when_uncausal(case):
    one, twice = (flops(case.variant, 64, case.variant.capabilities.causal, batch) for batch in (1, 2))
    assert (twice.forward, twice.backward) == (2 * one.forward, 2 * one.backward)
    assert isinstance(one.forward, int)
    assert isinstance(one.backward, int)
    # Sums over all keys are had at once, those over the past are not.
    softmax = isinstance(case.variant, SoftmaxAttention)
    if softmax and case.variant.capabilities.causal and case.variant.capabilities.two_sided:
        assert flops(case.variant, 64, False).forward >= one.forward


def test_exponents_are_fitted_right():
    assert fitted_exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


def test_the_mask_costs_nothing_by_itself():
    """Causal full attention at 4k keeps no T x S array: 4096^2 bools alone would be 16 MiB."""
    assert temporaries(attention.Full(), 4096, "plain") < 4096**2
    assert build("plain", True, 1, 8, 8) == Mask(causal=True)
