"""Numbers that no machine's arithmetic can hold are refused; the greatest that are accepted run."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Dense, Full, Mask, Pooled
from tests.attention.cases import first_cases, forward, inputs
from tests.attention.masks import honours

HEAVY = {"num_buckets", "num_hashes"}  # memory and the program grow with them, as is said beside their bounds
COUNTS = [
    pytest.param(case.variant, field.name, id=f"{case.variant.name}.{field.name}")
    for case in first_cases()
    for field in dataclasses.fields(case.variant)
    if field.type in (int, int | None)
]


def refusal(variant, field, value) -> str:
    with pytest.raises(
        ValueError, match=re.escape(f"{variant.name}: {field}={value!r} is not accepted")
    ) as raised:
        dataclasses.replace(variant, **{field: value})
    return str(raised.value)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("value", [2**31, 2**63, 10**400], ids=["2**31", "2**63", "10**400"])
@pytest.mark.parametrize(("variant", "field"), COUNTS)
def test_a_count_has_a_bound(variant, field, value):
    assert re.search(r"at most \d+", refusal(variant, field, value))


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
@pytest.mark.parametrize(("variant", "field"), [param for param in COUNTS if param.values[1] not in HEAVY])
def test_the_greatest_count_runs(variant, field, causal):
    most = int(re.findall(r"at most (\d+)", refusal(variant, field, 2**31))[0])
    greatest = dataclasses.replace(variant, **{field: most})
    if not honours(greatest, Mask(causal)):
        pytest.skip("has no such direction")
    assert np.isfinite(forward(greatest, inputs(greatest), Mask(causal))[0]).all()


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("value", [10**400, 1e39, 1e-46, float("inf"), float("nan"), 0, -1.0])
@pytest.mark.parametrize("field", ["scale", "temperature", "softcap"])
def test_what_multiplies_logits_fits_float32(field, value):
    assert "float32" in refusal(Dense(), field, value)


@pytest.mark.parametrize(
    ("scale", "temperature"), [(1e38, 1e-5), (10**38, 0.1), (1e-30, 1e30), (1.2e-38, 2), (None, 1e38)]
)
def test_what_scale_over_temperature_makes_fits_float32(scale, temperature):
    with pytest.raises(ValueError, match="float32") as refused:
        Full(scale=scale, temperature=temperature)
    for piece in (f"full: scale={scale!r}", f"temperature={temperature!r}"):
        assert piece in str(refused.value)


@pytest.mark.parametrize(
    ("scale", "temperature"), [(1e38, 1e38), (1e-37, 1e-37), (1e30, 1e-8), (None, 2e-38)]
)
def test_a_scale_over_a_temperature_that_fits_runs(scale, temperature):
    """Equal ones cancel; queries of 0 make what would be inf * 0."""
    for kind in (Full, Dense):
        variant = kind(scale=scale, temperature=temperature)
        given = inputs(variant)
        output, lse = forward(variant, given._replace(query=given.query * 0), Mask())
        assert np.isfinite(output).all() and np.isfinite(lse).all()


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("window_size", np.int64(3)),
        ("query_block", np.int32(8)),
        ("scale", np.float32(0.5)),
        ("count_members", np.True_),
    ],
)
def test_a_number_of_numpy_is_told_so(field, value):
    """A record could not hold it: Python's own is accepted in its place."""
    assert refusal(Pooled(), field, value).endswith(f"of Python's own, not numpy.{type(value).__name__}")
    kept = getattr(dataclasses.replace(Pooled(), **{field: value.item()}), field)
    assert json.loads(json.dumps(kept)) == kept


@pytest.mark.usefixtures("as_users_run")
def test_the_greatest_soft_cap_caps_nothing():
    """A greater one, which float32 still holds, took all logits to 0."""
    assert "at most 1e+30" in refusal(Dense(), "softcap", 1e38)
    given = inputs(Dense())
    large, of_int, free = (forward(Dense(softcap=softcap), given, Mask()) for softcap in (1e30, 10**20, None))
    for capped in (large, of_int):
        for one, other in zip(capped, free, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_rate_next_to_one_drops_all():
    variant = Dense(dropout_rate=1 - 1e-12)
    output, lse = forward(variant, inputs(variant, rng=jax.random.key(0)), Mask())
    assert (output == 0).all()
    assert jnp.isfinite(lse).all()
