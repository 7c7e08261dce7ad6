"""Laws 1 and 2: values and gradients against the oracle, and against full attention at the limit."""

import dataclasses

import jax.numpy as jnp
import pytest

from attention import Full, Mask
from tests.attention.cases import (
    BATCH,
    LENGTH,
    Case,
    Inputs,
    cases,
    first_cases,
    forward,
    inputs,
    run,
)
from tests.attention.masks import MASKS, build, honours
from tests.attention.references import by_reference, check_gradients
from tests.attention.tolerances import assert_close

SHORT = 11


def self_attention() -> list:
    """First settings under every mask that they honour; the others under the least and the most of one."""
    return [
        pytest.param(case, kind, causal, id=f"{case}-{kind}-{'causal' if causal else 'two-sided'}")
        for case in cases()
        for kind in (MASKS if case in first_cases() else ("plain", fullest(case.variant)))
        for causal in (True, False)
        if honours(case.variant, build(kind, causal, BATCH, LENGTH, LENGTH))
    ]


def fullest(variant) -> str:
    """The mask with most to honour, of those that the variant does: padding is in all of them."""
    causal = variant.capabilities.causal
    kinds = ("placed", "mixed", "holes")
    return next(kind for kind in kinds if honours(variant, build(kind, causal, BATCH, LENGTH, LENGTH)))


def cross_attention() -> list:
    """Fewer queries than keys and more. If causal the last query sees the last key."""
    return [
        pytest.param(
            case, kind, *lengths, causal,
            id=f"{case}-{kind}-{lengths[0]}x{lengths[1]}-{'causal' if causal else 'two-sided'}",
        )
        for case in cases()
        for kind in (("plain", "placed") if case in first_cases() else ("plain",))
        for lengths in ((SHORT, LENGTH), (LENGTH, SHORT))
        for causal in ((True, False) if case in first_cases() else (True,))
        if case.variant.capabilities.cross_attention
        and honours(case.variant, build(kind, causal, 1, *lengths))
    ]  # fmt: skip


@pytest.mark.parametrize("case", first_cases(), ids=str)
def test_it_has_a_reference(case):
    """A variant's own test file says, independently of its code, what it should compute."""
    assert hasattr(case.statement, "allowed") or hasattr(case.statement, "reference"), (
        f"tests/attention/test_{case.variant.name}.py must define `allowed` or `reference` (see cases.py)"
    )


@pytest.mark.parametrize(("case", "kind", "causal"), self_attention())
def test_law_1_output_and_gradients_equal_the_reference(case, kind, causal):
    check(case, inputs(case.variant), build(kind, causal, BATCH, LENGTH, LENGTH))


@pytest.mark.parametrize(("case", "kind", "query_length", "key_length", "causal"), cross_attention())
def test_law_1_for_cross_attention(case, kind, query_length, key_length, causal):
    given = inputs(case.variant, length=query_length, key_length=key_length)
    check(case, given, build(kind, causal, BATCH, query_length, key_length))


@pytest.mark.parametrize("kind", ["plain", "one_sided"])
@pytest.mark.parametrize(
    "case", [case for case in first_cases() if not case.variant.capabilities.shared_key], ids=str
)
def test_law_1_when_the_keys_are_the_queries(case, kind):
    """`key=None`: queries stand for keys, and their gradient is the sum of both."""
    given, mask = inputs(case.variant)._replace(key=None), build(kind, True, BATCH, LENGTH, LENGTH)
    if not honours(case.variant, mask):
        pytest.skip("does not take this mask")
    result = run(case.variant, given, mask)
    grouped = given.query.shape[2] // given.value.shape[2]
    spelled_out = given._replace(key=given.query, value=jnp.repeat(given.value, grouped, axis=2))
    twin = run(case.variant, spelled_out, mask)
    assert_close(result.output, twin.output)
    assert_close(result.lse, twin.lse)
    assert_close(result.gradients["query"], twin.gradients["query"] + twin.gradients["key"])
    d_value = twin.gradients["value"].reshape(*given.value.shape[:3], grouped, -1).sum(3)
    assert_close(result.gradients["value"], d_value)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
@pytest.mark.parametrize("case", cases(), ids=str)
def test_law_2_at_its_limit_it_is_full(case, causal):
    limit = case.variant.limit(LENGTH)
    assert limit.condition, "a limit says when it holds, or why there is none"
    mask = build("appended", causal, BATCH, LENGTH, LENGTH)
    if limit.hyperparameters is None or not honours(case.variant, mask):
        pytest.skip("has no limit in itself, or does not take this mask")
    variant, given = dataclasses.replace(case.variant, **limit.hyperparameters), inputs(case.variant)
    output, lse = forward(variant, given, mask)
    if hasattr(case.statement, "at_limit"):
        expected, expected_lse = case.statement.at_limit(case.variant, given, mask)
    else:
        shared = {x.name for x in dataclasses.fields(Full)} & {x.name for x in dataclasses.fields(variant)}
        full = Full(**{field: getattr(variant, field) for field in shared})
        expected, expected_lse = forward(full, given._replace(params={}), mask)
    assert_close(output, expected, what="output")
    assert_close(lse, expected_lse, what="lse")


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
@pytest.mark.parametrize("lengths", [(SHORT, LENGTH), (LENGTH, SHORT)], ids=str)
@pytest.mark.parametrize("case", first_cases(), ids=str)
def test_law_2_at_its_limit_it_is_full_for_cross_attention(case, lengths, causal):
    """The limit for the longer of both lengths."""
    limit, mask = case.variant.limit(max(lengths)), Mask(causal)
    if not limit.hyperparameters or not case.variant.capabilities.cross_attention:
        pytest.skip("has no limit in itself, or takes no keys of another length")
    variant = dataclasses.replace(case.variant, **limit.hyperparameters)
    given = inputs(variant, length=lengths[0], key_length=lengths[1])
    for one, other in zip(forward(variant, given, mask), forward(Full(), given, mask), strict=True):
        assert_close(one, other)


def check(case: Case, given: Inputs, mask: Mask) -> None:
    """Value and gradients of one call."""
    result = run(case.variant, given, mask)
    output, lse = by_reference(case, given, mask)
    assert_close(result.output, output, what="output")
    assert_close(result.lse, lse, what="lse")
    check_gradients(case, given, mask, result.gradients)
