"""Wrong calls: the error names the argument, its shape or value, and what would be accepted."""

import dataclasses
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention
from attention import Attention, Dense, Flops, Full, Limit, Mask, Pooled, SoftmaxAttention, Window
from tests.attention.cases import call, first_cases, inputs
from tests.attention.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("as_users_run")

OF_ITS_OWN = ("full", "dense", "pooled", "lsh", "block_sparse", "moba")  # what others are made of
SELF = pytest.mark.parametrize("case", first_cases(), ids=str)


def zeros(*shape, dtype=jnp.float32):
    return jnp.zeros(shape, dtype)


USUAL = {"query": zeros(2, 5, 4, 8), "key": zeros(2, 7, 2, 8), "value": zeros(2, 7, 2, 6), "mask": Mask()}


def refused(*pieces: str, **changed: Any) -> None:
    """Every exact variant answers the usual call, so changed, by a ValueError that says all `pieces`."""
    answered(ValueError, *pieces, **changed)


def no_array(*pieces: str, **changed: Any) -> None:
    """Or by a TypeError."""
    answered(TypeError, *pieces, **changed)


def answered(kind: type[Exception], *pieces: str, **changed: Any) -> None:
    arguments = USUAL | changed
    operands = [arguments.pop(name) for name in ("query", "key", "value", "mask")]
    for variant in (Full(), Dense(), Window(window_size=3)):
        with pytest.raises(kind) as refusal:
            variant(*operands, **arguments)
        for piece in pieces:
            assert piece in str(refusal.value)


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_four_axes(name):
    refused(name, "4 axes", "(5, 8)", **{name: zeros(5, 8)})


def test_the_other_layout_is_noticed():
    """(batch, heads, length, width) in place of (batch, length, heads, width)."""
    refused("key (2, 2, 7, 8)", "value (2, 7, 2, 6)", "length", key=zeros(2, 2, 7, 8))


def test_head_widths_agree():
    refused("key (2, 7, 2, 9)", "query (2, 5, 4, 8)", "head width", key=zeros(2, 7, 2, 9))


def test_batches_agree():
    refused("value (3, 7, 2, 6)", "query (2, 5, 4, 8)", "batch", value=zeros(3, 7, 2, 6))


def test_lengths_of_keys_and_values_agree():
    refused("key (2, 7, 2, 8)", "value (2, 8, 2, 6)", "length", value=zeros(2, 8, 2, 6))
    refused("query (the keys, as key is None)", "(2, 7, 2, 6)", key=None)


def test_heads_agree():
    refused("key (2, 7, 2, 8)", "value (2, 7, 4, 6)", "heads", value=zeros(2, 7, 4, 6))


def test_key_heads_divide_query_heads():
    key, value = zeros(2, 7, 3, 8), zeros(2, 7, 3, 6)
    refused("3 heads", "(2, 7, 3, 6)", "(2, 5, 4, 8)", "divide", key=key, value=value)
    refused("0 heads", "(2, 7, 0, 6)", key=zeros(2, 7, 0, 8), value=zeros(2, 7, 0, 6))


def test_dtypes_agree_and_are_floating():
    refused("key", "bfloat16", "float32", key=zeros(2, 7, 2, 8, dtype=jnp.bfloat16))
    refused("query", "int32", "floating", query=zeros(2, 5, 4, 8, dtype=jnp.int32))


@pytest.mark.parametrize(
    ("field", "length"),
    [
        ("query_valid", 5),
        ("key_valid", 7),
        ("query_positions", 5),
        ("query_segments", 5),
        ("key_segments", 7),
    ],
)
def test_shapes_of_mask_arrays(field, length):
    dtype = bool if field.endswith("valid") else int
    for shape in ((2, length + 1), (3, length), (length,)):
        mask = dataclasses.replace(Mask(), **{field: jnp.ones(shape, dtype)})
        refused(f"mask.{field}", str(shape), str((2, length)), str((1, length)), mask=mask)


def test_dtypes_of_mask_arrays():
    refused("mask.key_valid", "float32", "bool", mask=Mask(key_valid=jnp.ones((2, 7))))
    refused(
        "mask.query_positions",
        "bool",
        "integer",
        mask=Mask(query_positions=jnp.ones((2, 5), bool)),
    )


def test_integers_fit_int32_by_their_type():
    """Segments 1 and 2**32 + 1 would be one document where they are cut, and two where they are not."""
    with jax.enable_x64(True):
        wide = jnp.asarray([[1, 2**32 + 1]])
        query = zeros(1, 2, 1, 4)
        for mask in (Mask.for_self(segments=wide), Mask.for_self(positions=wide)):
            for variant in (Full(), Dense(), Window()):
                with pytest.raises(ValueError, match=r"int64.*int32"):
                    variant(query, query, query, mask)
    refused("uint32", "int32", mask=Mask(query_positions=jnp.ones((2, 5), jnp.uint32)))


def test_segments_come_in_pairs_and_key_positions_with_query_positions():
    for field, length in (("query_segments", 5), ("key_segments", 7)):
        mask = dataclasses.replace(Mask(), **{field: jnp.ones((2, length), int)})
        refused("query_segments", "key_segments", mask=mask)
    mask = Mask(key_positions=jnp.ones((2, 7), int))
    refused("mask.key_positions", "mask.query_positions", mask=mask)


def test_rng_is_a_typed_key():
    refused("rng", "jax.random.key", "uint32", rng=jax.random.PRNGKey(0))
    refused("rng", "jax.random.key", rng=jnp.zeros(2))
    refused("rng", "one typed key", "(2,)", rng=jax.random.split(jax.random.key(0)))
    no_array("rng", "jax.random.key", "int", rng=3)
    for rng in (jax.random.key(0), jax.random.wrap_key_data(jax.random.PRNGKey(0))):  # as the line advises
        assert Dense(dropout_rate=0.5)(*USUAL.values(), rng=rng).shape == (2, 5, 4, 6)


@pytest.mark.parametrize("wrong", [[], None, 3.0])
def test_parameters_that_are_no_dict_are_named(wrong: Any):
    no_array("params", "dict", type(wrong).__name__, params=wrong)


@pytest.mark.parametrize("wrong", [[[1.0]], None, 3.0, jax.ShapeDtypeStruct((2, 5, 4, 8), jnp.float32)])
def test_what_is_no_array_is_named(wrong: Any):
    given = type(wrong).__name__
    for name in ("query", "key", "value")[:: 2 if wrong is None else 1]:
        no_array(name, "numpy.ndarray", given, **{name: wrong})
    for function in (
        lambda: attention.attention_matrix(Full(), wrong, None, Mask()),
        lambda: attention.attend_with_entropy(Full(), wrong, *list(USUAL.values())[1:]),
        lambda: attention.lsh_buckets(attention.LSH(), wrong, None),
    ):
        with pytest.raises(TypeError, match=rf"query must be .*numpy\.ndarray, not {given}"):
            function()


def test_a_list_for_a_mask_or_for_gates_is_named():
    mask: Any = {"key_valid": [[True] * 7]}
    no_array("mask.key_valid", "numpy.ndarray", "list", mask=Mask(**mask))
    no_array("gates", "numpy.ndarray", "list", gates=[1.0])


def test_arrays_of_numpy_are_accepted_but_not_of_objects():
    arrays: dict[str, Any] = {name: np.asarray(USUAL[name]) for name in ("query", "key", "value")}
    assert Full()(**arrays, mask=Mask()).shape == (2, 5, 4, 6)
    refused("value", "floating point", "object", value=arrays["value"].astype(object))


def test_surplus_arguments_are_refused():
    refused("gates", "(2, 5, 4, 1)", gates=zeros(2, 5, 4, 1))
    refused("params", "surplus", params={"surplus": 1})


@SELF
def test_each_variant_checks_its_calls(case):
    """Whoever writes a new variant cannot forget to: one wrong shape for every one of them."""
    given = inputs(case.variant)
    with pytest.raises(ValueError, match=re.escape(str(given.value[:1].shape))):
        call(
            case.variant, given._replace(value=given.value[:1]), Mask(causal=case.variant.capabilities.causal)
        )
    with pytest.raises(ValueError, match=r"mask\.key_valid"):
        mask = Mask(case.variant.capabilities.causal, key_valid=jnp.ones((1, 3), bool))
        call(case.variant, given, mask)


@SELF
def test_shapes_and_dtypes_of_what_comes_back(case):
    """Output B T N V like the query, log-sum-exp B T N in float32; a call is `attend` without the latter."""
    mask = Mask(causal=case.variant.capabilities.causal)
    for dtype in (jnp.float32, jnp.bfloat16):
        given = inputs(case.variant, dtype=dtype)
        output, lse = jax.eval_shape(lambda x: call(case.variant, x, mask), given)
        assert output.shape == (*given.query.shape[:3], given.value.shape[3])
        assert (output.dtype, lse.dtype, lse.shape) == (dtype, jnp.float32, given.query.shape[:3])
    if issubclass(type(case.variant), SoftmaxAttention):
        called = case.variant(given.query, given.key, given.value, mask, params=given.params)
        assert (called == call(case.variant, given, mask)[0]).all()


@pytest.mark.parametrize("case", [x for x in first_cases() if x.variant.name in OF_ITS_OWN], ids=str)
def test_the_log_sum_exp_can_be_had_without_values(case):
    """V = 0: an empty output and the same log-sum-exp. H = 0: all logits are 0."""
    mask = Mask(causal=case.variant.capabilities.causal)
    if not case.variant.capabilities.value_width or case.variant.capabilities.learned:
        return
    given = inputs(case.variant, length=5)
    output, lse = call(case.variant, given._replace(value=given.value[..., :0]), mask)
    assert output.shape == (*given.query.shape[:3], 0)
    assert_close(lse, call(case.variant, given, mask)[1])
    narrow = given._replace(query=given.query[..., :0], key=None if given.key is None else given.key[..., :0])
    equal = given._replace(query=given.query * 0, key=None if given.key is None else given.key * 0)
    for one, other in zip(call(case.variant, narrow, mask), call(case.variant, equal, mask), strict=True):
        assert_close(one, other)


@dataclasses.dataclass(frozen=True)
class Gated(Full):
    """Full attention whose output is multiplied by the first of its two gates."""

    name = "gated"
    num_gates = 2

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        output, lse = super()._attend(query, key, value, mask, params=params, rng=rng, gates=gates)
        return output * gates[..., :1], lse


@dataclasses.dataclass(frozen=True)
class Summed(Attention):
    """No softmax: every query gets the sum of all values."""

    name = "summed"
    capabilities = Full().capabilities
    reach = math.inf

    def limit(self, length):
        return Limit(None, "no softmax")

    def flops(self, **shape):
        return Flops(0, 0)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        total = value.astype(jnp.float32).sum(1, keepdims=True)
        return jnp.repeat(jnp.broadcast_to(total, (*query.shape[:2], *value.shape[2:])), 2, axis=2)


def test_what_is_no_softmax_is_checked_and_padded_and_cast_too():
    query, key, value, _ = (USUAL[name] for name in ("query", "key", "value", "mask"))
    valid = jnp.arange(7)[None] < 3
    narrow = (x.astype(jnp.bfloat16) for x in (query, key, value.at[:, :3].set(1).at[:, 3:].set(jnp.nan)))
    output = Summed()(*narrow, Mask(key_valid=valid))
    assert output.dtype == jnp.bfloat16
    assert output.shape == (2, 5, 4, 6)
    assert (output == 3).all()
    assert (Summed()(query, key[:, :0], value[:, :0], Mask()) == 0).all()
    assert Summed()(query, key, value[..., :0], Mask()).shape == (2, 5, 4, 0)
    with pytest.raises(ValueError, match="summed takes no gates"):
        Summed()(query, key, value, Mask(), gates=zeros(2, 5, 4, 1))


def test_gates_are_as_many_as_asked_for():
    operands = [USUAL[name] for name in ("query", "key", "value", "mask")]
    assert Gated()(*operands, gates=zeros(2, 5, 4, 2)).shape == (2, 5, 4, 6)
    for gates in (None, zeros(2, 5, 4, 1), zeros(2, 7, 4, 2), zeros(1, 5, 4, 2)):
        with pytest.raises(ValueError, match=r"gated.*gates.*\(2, 5, 4, 2\)"):
            Gated()(*operands, gates=gates)


def test_unknown_parameters_are_refused():
    variant = Pooled(pooling="learned")
    given = inputs(variant)
    with pytest.raises(ValueError, match=r"pooled.*pool_query \(2, 2, 4\).*typo"):
        call(variant, given._replace(params={**given.params, "typo": 1}), Mask())


def test_public_names_are_what_is_exported():
    assert sorted(attention.__all__) == sorted(set(attention.__all__))
    assert all(hasattr(attention, name) for name in attention.__all__)
    assert all(getattr(attention, name).__doc__ for name in attention.__all__)
