"""Each cell of the capability table: what is claimed works, what is denied raises and says what and who.

Proven elsewhere: interior padding and segments by law 5, exact by 1, equivariant by 11, cost by 10.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention
from attention import Attention, Capabilities, Mask
from tests.attention.cases import (
    BATCH,
    HEAD_DIM,
    LENGTH,
    NUM_HEADS,
    NUM_KV_HEADS,
    call,
    cases,
    cotangents,
    evaluate,
    first_cases,
    inputs,
)
from tests.attention.masks import MASKS, build, honours

ALL = pytest.mark.parametrize("case", cases(), ids=str)
FIRST = pytest.mark.parametrize("case", first_cases(), ids=str)


@pytest.mark.parametrize("kind", [kind for kind in MASKS if kind != "plain"])
@FIRST
def test_masks_are_honoured_or_refused(case, kind):
    """Refused while tracing, naming the variant and every field that it cannot honour."""
    mask = build(kind, case.variant.capabilities.causal, BATCH, LENGTH, LENGTH)
    given = inputs(case.variant)
    if honours(case.variant, mask):
        result = evaluate(case.variant, given, mask, *cotangents(given))
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(result.gradients))
        return
    with pytest.raises(NotImplementedError) as refusal:
        jax.eval_shape(lambda given, mask: call(case.variant, given, mask), given, mask)
    assert case.variant.name in str(refusal.value)
    refused = [x for x in mask.given() if not honours(case.variant, dataclasses.replace(mask, **dict.fromkeys(
        set(mask.given()) - {x})))]  # fmt: skip
    assert refused
    assert all(field in str(refusal.value) for field in refused)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
@ALL
def test_direction_is_honoured_or_refused(case, causal):
    can = case.variant.capabilities
    if can.causal if causal else can.two_sided:
        jax.eval_shape(lambda x: call(case.variant, x, Mask(causal)), inputs(case.variant))
    else:
        with pytest.raises(NotImplementedError, match=rf"{case.variant.name}.*causal={causal}"):
            call(case.variant, inputs(case.variant), Mask(causal))


@ALL
def test_cross_attention_works_or_is_refused(case):
    given = inputs(case.variant, length=5, key_length=7)
    check(case, case.variant.capabilities.cross_attention, given, [5, 7])


@ALL
def test_grouped_queries_work_or_are_refused(case):
    given = inputs(case.variant)
    other = inputs(attention.Full(), num_kv_heads=NUM_KV_HEADS)
    value = other.value[..., : given.value.shape[3]]
    key = None if given.key is None else other.key
    given = given._replace(key=key, value=value)
    check(case, case.variant.capabilities.grouped_queries, given, [NUM_HEADS, NUM_KV_HEADS])


@ALL
def test_values_of_another_width_work_or_are_refused(case):
    given = inputs(case.variant)
    given = given._replace(value=jnp.zeros((*given.value.shape[:3], HEAD_DIM + 3)))
    check(case, case.variant.capabilities.value_width, given, [HEAD_DIM + 3])


def check(case, claimed: bool, given, numbers: list[int]) -> None:
    """The call has an output of the right shape, or raises naming the variant and the numbers in question."""
    mask = Mask(causal=case.variant.capabilities.causal)
    if claimed:
        output, _ = jax.eval_shape(lambda x: call(case.variant, x, mask), given)
        assert output.shape == (*given.query.shape[:3], given.value.shape[3])
    else:
        with pytest.raises((NotImplementedError, ValueError)) as refusal:
            call(case.variant, given, mask)
        assert all(str(number) in str(refusal.value) for number in numbers)


@ALL
def test_shared_keys_mean_that_key_must_be_none(case):
    given = inputs(case.variant)
    mask = Mask(causal=case.variant.capabilities.causal)
    if case.variant.capabilities.shared_key:
        assert given.key is None
        key = given.query[:, :, :NUM_KV_HEADS]
        with pytest.raises(NotImplementedError, match=rf"{case.variant.name}.*key"):
            call(case.variant, given._replace(key=key, value=given.value[:, :, :NUM_KV_HEADS]), mask)
    else:
        given = inputs(case.variant, num_kv_heads=NUM_HEADS)
        output, _ = jax.eval_shape(lambda x: call(case.variant, x, mask), given._replace(key=None))
        assert output.shape[:3] == given.query.shape[:3]


@ALL
def test_learned_means_that_init_gives_parameters(case):
    """And one that does not learn refuses any."""
    sizes = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 4, "model_dim": 16, "max_length": 8}
    params = case.variant.init(jax.random.key(0), **sizes)
    assert bool(jax.tree.leaves(params)) == case.variant.capabilities.learned
    if not case.variant.capabilities.learned:
        assert params == {}
        given = inputs(case.variant)._replace(params={"surplus": np.zeros(3)})
        with pytest.raises(ValueError, match=rf"{case.variant.name}.*surplus"):
            call(case.variant, given, Mask(causal=case.variant.capabilities.causal))


@ALL
def test_decoding_means_a_cache(case):
    """And a refusal by name where there is none; that steps are right, test_decoding.py proves."""
    sizes = {"num_heads": NUM_HEADS, "num_kv_heads": NUM_HEADS, "head_dim": HEAD_DIM, "value_dim": HEAD_DIM}
    if case.variant.capabilities.decoding:
        assert case.variant.capabilities.causal
        case.variant.init_cache(batch=BATCH, max_length=LENGTH, **sizes)
        return
    query = jnp.zeros((BATCH, 1, NUM_HEADS, HEAD_DIM))
    for use in (
        lambda: case.variant.init_cache(batch=BATCH, max_length=LENGTH, **sizes),
        lambda: case.variant.prefill(query, query, query, max_length=LENGTH),
        lambda: case.variant.step(query, query, query, ()),
    ):
        with pytest.raises(NotImplementedError, match=rf"{case.variant.name} cannot decode"):
            use()


@ALL
def test_no_other_number_of_gates_is_accepted(case):
    given = inputs(case.variant)
    gates = jnp.zeros((*given.query.shape[:3], case.variant.num_gates + 1))
    with pytest.raises(ValueError, match=rf"{case.variant.name}.*gates.*\)"):
        call(case.variant, given._replace(gates=gates), Mask(causal=case.variant.capabilities.causal))


@ALL
def test_exact_variants_declare_what_they_see(case):
    assert case.variant.capabilities.exact == hasattr(case.statement, "allowed")


@ALL
def test_the_row_is_complete_and_the_variant_hashable(case):
    row = dataclasses.asdict(case.variant.capabilities)
    strings = {"time", "memory"}
    assert all(isinstance(x, str if field in strings else bool) for field, x in row.items())
    assert issubclass(type(case.variant), Attention)
    assert type(case.variant.capabilities) is Capabilities
    assert hash(case.variant) == hash(dataclasses.replace(case.variant))
    assert case.variant == dataclasses.replace(case.variant)
    with pytest.raises(dataclasses.FrozenInstanceError):
        case.variant.scale = 2.0


def test_the_table_has_every_variant():
    assert attention.capabilities() == {name: attention.make(name).capabilities for name in attention.names()}
