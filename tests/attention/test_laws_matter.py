"""Laws 11 and 12: a variant matters, and so does each of its hyperparameters."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Mask
from tests.attention.cases import LENGTH, cases, first_cases, forward, inputs
from tests.attention.tolerances import assert_close

COST_ONLY = {"query_block", "key_block"}  # fields that may leave the output as it is


CONTROLS = ("mean", "none")


@pytest.mark.parametrize("case", cases(), ids=str)
def test_law_11_it_differs_from_the_mean_and_from_nothing(case):
    """For a query that sees many: the last one."""
    if case.variant.name in CONTROLS:
        pytest.skip("is the mean, or nothing")
    given = inputs(case.variant)
    output, _ = forward(case.variant, given, Mask(causal=case.variant.capabilities.causal))
    value = np.repeat(given.value, given.query.shape[2] // given.value.shape[2], axis=2)
    assert abs(output[:, -1]).max() > 0.1
    assert abs(output[:, -1] - value.mean(1)).max() > 0.1


@pytest.mark.parametrize("case", cases(), ids=str)
def test_law_11_permutations_pass_through_the_equivariant(case):
    """Without a mask and without positions, order matters to none but the variants that say so."""
    if not case.variant.capabilities.two_sided:
        assert not case.variant.capabilities.equivariant
        return
    order = np.random.default_rng(0).permutation(LENGTH)
    given = inputs(case.variant)
    output, _ = forward(case.variant, given, Mask())
    permuted, _ = forward(case.variant, given.over_tokens(lambda x: x[:, order]), Mask())
    if case.variant.capabilities.equivariant:
        assert_close(permuted, output[:, order])
    elif not degenerate(case.variant, given, output):
        assert abs(permuted - output[:, order]).max() > 0.05


def degenerate(variant, given, output) -> bool:
    """Whether it is full attention at this length as it is, or sees itself alone: these are equivariant."""
    value = np.repeat(given.value, given.query.shape[2] // given.value.shape[2], axis=2)
    limit = variant.limit(LENGTH).hyperparameters
    full = value if limit is None else forward(dataclasses.replace(variant, **limit), given, Mask())[0]
    return bool(abs(output - value).max() < 1e-5 or abs(output - full).max() < 1e-5)


FIELDS = [
    pytest.param(case, field.name, id=f"{case.variant.name}.{field.name}")
    for case in first_cases()
    for field in dataclasses.fields(case.variant)
]


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("case", "field"), FIELDS)
def test_law_12_every_hyperparameter_matters(case, field):
    """Some other value of it is accepted and changes the output, or, of a block's size, the program."""
    accepted = list(alternatives(case.variant, field))
    assert accepted, f"no other value of {field} is accepted"
    differ = programs_differ if field in COST_ONLY else outputs_differ
    assert any(differ(case.variant, variant) for variant in accepted), f"{field} changes nothing"


def alternatives(variant, field: str):
    """The variant with other values of `field`, those that it accepts."""
    for value in other_values(variant, field):
        try:
            yield dataclasses.replace(variant, **{field: value})
        except ValueError as refusal:
            assert f"{field}={value!r}" in str(refusal)


def other_values(variant, field: str) -> list:
    """Values of the same kind; a choice among strings is read from what a wrong one is answered."""
    value = getattr(variant, field)
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value, value + 1, value // 2]
    if isinstance(value, float):
        return [value / 2, value + 0.25]
    if isinstance(value, str):
        with pytest.raises(ValueError) as refusal:
            dataclasses.replace(variant, **{field: "no such choice"})
        return [x for x in re.findall(r"'(\w+)'", str(refusal.value)) if x != value]
    return [4, 3, 0.7]


def outputs_differ(one, other) -> bool:
    """Nothing that is only counted counts: FLOPs could read a field that the computation ignores."""
    causal = one.capabilities.causal
    output, changed = (value(variant, inputs(variant), causal) for variant in (one, other))
    return bool(abs(output - changed).max() > 1e-3)


def programs_differ(one, other) -> bool:
    """Whether they differ in what the compiled program reads and keeps."""
    mask = Mask(one.capabilities.causal)
    programs = [forward.lower(x, inputs(x), mask).compile() for x in (one, other)]
    costs = [(program.cost_analysis(), str(program.memory_analysis())) for program in programs]
    return costs[0] != costs[1]


def value(variant, given, causal):
    rng = jax.random.key(0) if getattr(variant, "dropout_rate", 0) else None
    return jnp.asarray(forward(variant, given._replace(rng=rng), Mask(causal))[0])
