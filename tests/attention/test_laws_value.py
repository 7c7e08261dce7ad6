"""Laws 1 and 2: values and gradients against the oracle, and against full attention at the limit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask
from tests.attention import oracle
from tests.attention.cases import (
    BATCH,
    LENGTH,
    Case,
    Inputs,
    cases,
    cotangents,
    first_cases,
    forward,
    inputs,
    logit_scale,
    run,
)
from tests.attention.masks import MASKS, build, honours
from tests.attention.tolerances import assert_close

SHORT = 11


def self_attention() -> list:
    """First settings under every mask that they honour; the others under those that differ most."""
    return [
        pytest.param(case, kind, causal, id=f"{case}-{kind}-{'causal' if causal else 'two-sided'}")
        for case in cases()
        for kind in (MASKS if case in first_cases() else ("plain", "holes", "placed"))
        for causal in (True, False)
        if honours(case.variant, build(kind, causal, BATCH, LENGTH, LENGTH))
    ]


def cross_attention() -> list:
    """Fewer queries than keys and more; causal, where the last query sees the last key."""
    return [
        pytest.param(case, kind, *lengths, id=f"{case}-{kind}-{lengths[0]}x{lengths[1]}")
        for case in cases()
        for kind in (("plain", "placed") if case in first_cases() else ("plain",))
        for lengths in ((SHORT, LENGTH), (LENGTH, SHORT))
        if case.variant.capabilities.cross_attention and honours(case.variant, build(kind, True, 1, *lengths))
    ]


@pytest.mark.parametrize("case", first_cases(), ids=str)
def test_it_has_a_reference(case):
    """A variant's own test file says, independently of its code, what it should compute."""
    assert hasattr(case.statement, "allowed") or hasattr(case.statement, "reference"), (
        f"tests/attention/test_{case.variant.name}.py must define `allowed` or `reference` (see cases.py)"
    )


@pytest.mark.parametrize(("case", "kind", "causal"), self_attention())
def test_law_1_output_and_gradients_equal_the_reference(case, kind, causal):
    check(case, inputs(case.variant), build(kind, causal, BATCH, LENGTH, LENGTH))


@pytest.mark.parametrize(("case", "kind", "query_length", "key_length"), cross_attention())
def test_law_1_for_cross_attention(case, kind, query_length, key_length):
    given = inputs(case.variant, length=query_length, key_length=key_length)
    check(case, given, build(kind, True, BATCH, query_length, key_length))


@pytest.mark.parametrize("case", first_cases(), ids=str)
def test_law_1_when_the_keys_are_the_queries(case):
    """`key=None`: queries stand for keys, and their gradient is the sum of both."""
    given = inputs(case.variant)._replace(key=None)
    result = run(case.variant, given, Mask(causal=True))
    if case.variant.capabilities.shared_key:
        return
    grouped = given.query.shape[2] // given.value.shape[2]
    spelled_out = given._replace(key=given.query, value=jnp.repeat(given.value, grouped, axis=2))
    twin = run(case.variant, spelled_out, Mask(causal=True))
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
        return
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


def check(case: Case, given: Inputs, mask: Mask) -> None:
    """Value and gradients of one call: an exact variant by the oracle, another by its own reference."""
    result = run(case.variant, given, mask)
    if hasattr(case.statement, "allowed"):
        output, lse, gradients = by_oracle(case, given, mask)
        for name, gradient in gradients._asdict().items():
            assert_close(result.gradients[name], gradient, what=f"gradient of {name}")
    else:
        choices = case.statement.choices(case.variant, given) if hasattr(case.statement, "choices") else None

        def reference(changed: Inputs):
            return case.statement.reference(case.variant, changed, mask, choices)

        output, lse = reference(given)
        check_by_differences(reference, given, result.gradients)
    assert_close(result.output, output, what="output")
    assert_close(result.lse, lse, what="lse")


def by_oracle(case: Case, given: Inputs, mask: Mask):
    """Output, log-sum-exp and gradients by the oracle over the pairs that the variant may see."""
    variant, lengths = case.variant, (given.query.shape[0], given.query.shape[1], given.value.shape[1])
    allowed = case.statement.allowed(variant, mask, *lengths)
    operands = given.query, given.key, given.value, allowed, logit_scale(variant)
    output, lse, _ = oracle.attend(*operands, softcap=variant.softcap)
    return output, lse, oracle.gradients(*operands, *cotangents(given), softcap=variant.softcap)


def check_by_differences(reference, given: Inputs, gradients: dict, step: float = 1e-5) -> None:
    """Gradients along random directions equal central differences of the reference in float64."""
    draw = np.random.default_rng(7)
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), given._replace(rng=None))
    d_output, d_lse = (np.asarray(x, np.float64) for x in cotangents(given))

    def loss(name, direction, distance):
        moved = jax.tree.map(lambda x, d: x + distance * d, getattr(wide, name), direction)
        output, lse = reference(wide._replace(**{name: moved}))
        return (d_output * output).sum() + np.where(np.isfinite(lse), d_lse * lse, 0).sum()

    for name, gradient in gradients.items():
        leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(gradient)]
        norm = np.sqrt(sum((x**2).sum() for x in leaves))
        for _ in range(3 if leaves else 0):
            direction = jax.tree.map(lambda x: draw.normal(size=x.shape), gradient)
            expected = (loss(name, direction, step) - loss(name, direction, -step)) / (2 * step)
            slope = sum((x * d).sum() for x, d in zip(leaves, jax.tree.leaves(direction), strict=True))
            np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-4 * norm, err_msg=name)
