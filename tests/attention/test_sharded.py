"""attend_sharded: what several devices give together is what one gives, values and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import attention
from attention import Mask, attend_sharded, ring
from tests.attention.cases import BATCH, call, cotangents, evaluate, first_cases, inputs
from tests.attention.tolerances import assert_close

LENGTH = 48  # shares of 6, 12, 16 and 24


def mesh_of(data, sequence):
    devices = np.array(jax.devices()[: data * sequence]).reshape(data, sequence)
    return Mesh(devices, ("data", "sequence"))


@functools.partial(jax.jit, static_argnums=(0, 1))
def evaluate_sharded(variant, mesh, given, mask, d_output, d_lse):
    """Output, log-sum-exp, and gradients with respect to query, key and value."""

    def of(query, key, value):
        options = {"params": given.params, "rng": given.rng}
        return attend_sharded(variant, query, key, value, mask, mesh=mesh, **options)

    (output, lse), pull = jax.vjp(of, *given[:3])
    return output, lse, *pull((d_output, d_lse))


def padded(length=LENGTH):
    """Padding anywhere, for the whole batch alike, and segments that are not."""
    draw = np.random.default_rng(0)
    valid = draw.random((1, length)) > 0.3
    segments = np.sort(draw.integers(0, 3, (BATCH, length)), 1).astype(np.int32)
    return {"valid": jnp.asarray(valid), "segments": jnp.asarray(segments)}


def shuffled(length=LENGTH):
    draw = np.random.default_rng(0)
    return {"positions": jnp.stack([draw.permutation(length).astype(np.int32) for _ in range(BATCH)])}


def causal():
    return Mask(causal=True)


FULL = {"query_block": 4, "key_block": 8}
WINDOW = {"query_block": 4}
CASES = {
    "full, causal, halves dealt out": ("full", FULL, (1, 8), causal, {}),
    "full, two-sided, padding and segments": ("full", FULL, (2, 4), lambda: Mask.for_self(**padded()), {}),
    "full, shuffled positions, dropout": (
        "full", FULL | {"dropout_rate": 0.3}, (2, 3), lambda: Mask.for_self(causal=True, **shuffled()), {},
    ),
    "full, causal, shares of odd length": ("full", FULL, (1, 8), causal, {"length": 24}),
    "full, causal, more keys than queries": (
        "full", FULL, (1, 4), causal, {"length": 24, "key_length": LENGTH},
    ),
    "window within a share": ("window", WINDOW | {"window_size": 5}, (1, 8), causal, {}),
    "window over several shares": ("window", WINDOW | {"window_size": 16}, (1, 8), Mask, {}),
    "window, padding and segments, dropout": (
        "window", WINDOW | {"window_size": 21, "dropout_rate": 0.3}, (2, 4),
        lambda: Mask.for_self(**padded()), {},
    ),
    "window over everything": ("window", {"window_size": 500}, (1, 3), causal, {}),
}  # fmt: skip


def assert_shared_alike(variant, shape, mask, **sizes):
    given = inputs(variant, **{"length": LENGTH} | sizes, rng=jax.random.key(5))
    losses = cotangents(given)
    expected = evaluate(variant, given, mask, *losses)
    output, lse, *gradients = evaluate_sharded(variant, mesh_of(*shape), given, mask, *losses)
    assert_close(output, expected.output, what="output")
    assert_close(lse, expected.lse, what="lse")
    for gradient, part in zip(gradients, ("query", "key", "value"), strict=True):
        assert_close(gradient, expected.gradients[part], what=part)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_devices_together_equal_one(case):
    name, fields, shape, make_mask, sizes = case
    assert_shared_alike(attention.make(name, **fields), shape, make_mask(), **sizes)


@pytest.mark.parametrize("case", first_cases(), ids=str)
def test_the_capability_is_what_works(case):
    variant = case.variant
    if variant.capabilities.sequence_parallel:
        assert_shared_alike(variant, (2, 4), Mask(causal=variant.capabilities.causal))
        return
    given = inputs(variant, length=LENGTH)
    with pytest.raises(NotImplementedError, match=f"{variant.name} cannot share a sequence"):
        mask, rest = Mask(variant.capabilities.causal), {"params": given.params, "gates": given.gates}
        attend_sharded(variant, *given[:3], mask, mesh=mesh_of(2, 4), **rest)


@pytest.mark.parametrize("name", ["full", "window"])
def test_a_device_holds_its_share_and_no_more(name):
    """Temporaries of forward and backward go down with the devices; nothing is gathered."""
    # The default's tile is as large as a share; a device holds one, however many there are.
    variant, mask, length = attention.make(name, query_block=64), Mask(causal=True), 65536
    q, k, v = (jax.ShapeDtypeStruct((1, length, 4, 16), jnp.float32) for _ in range(3))

    def compiled(devices):
        mesh = mesh_of(1, devices)
        spread = jax.sharding.NamedSharding(mesh, PartitionSpec("data", "sequence"))

        def loss(*arrays):
            return attend_sharded(variant, *arrays, mask, mesh=mesh)[0].sum()

        return jax.jit(jax.grad(loss, (0, 1, 2)), in_shardings=spread).lower(q, k, v).compile()

    one, eight = compiled(1), compiled(8)
    assert _temporaries(eight) < _temporaries(one) / 4
    text = eight.as_text()
    words = ("all-gather", "all-to-all", "all-reduce", "collective-permute")
    assert [word for word in words if f" {word}(" in text] == ["collective-permute"]


def _temporaries(compiled):
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("devices", [2, 3, 8])
def test_a_causal_ring_gives_every_device_the_same_work(devices):
    """In each step the visible pairs of half shares, those on the diagonal counted as half, are as many."""
    halves = jax.shard_map(
        lambda x: ring._dealt(x, 0, "sequence"),
        mesh=mesh_of(1, devices), in_specs=PartitionSpec("sequence"), out_specs=PartitionSpec("sequence"),
        check_vma=False,
    )(jnp.arange(2 * devices)).reshape(devices, 2)  # fmt: skip
    assert sorted(np.ravel(halves)) == list(range(2 * devices))
    for step in range(devices):
        keys = np.roll(halves, step, axis=0)
        work = [
            sum(1.0 if k < q else 0.5 if k == q else 0.0 for q in mine for k in theirs)
            for mine, theirs in zip(np.asarray(halves), keys, strict=True)
        ]
        assert set(work) == {2.0}


@pytest.mark.parametrize(
    ("name", "change", "error", "words"),
    [
        ("full", {"axes": ("data", "model")}, ValueError, '"data" and "sequence"'),
        ("full", {"length": 50}, ValueError, "the query's length 50 does not divide into 4"),
        ("full", {"batch": 3}, ValueError, "the batch 3 does not divide into 2"),
        (
            "window",
            {"mask": lambda: Mask.for_self(**shuffled())},
            NotImplementedError,
            "window .*query_positions",
        ),
        ("window", {"key_length": 52}, NotImplementedError, "window .*48 queries and 52 keys"),
        ("lsh", {}, NotImplementedError, "lsh cannot share a sequence"),
    ],
)
def test_what_cannot_be_shared_is_refused(name, change, error, words):
    change = {"length": LENGTH} | change
    mask, axes = change.pop("mask", Mask)(), change.pop("axes", ("data", "sequence"))
    mesh = Mesh(mesh_of(2, 4).devices, axes)
    variant = attention.make(name)
    given = inputs(variant, **change)
    with pytest.raises(error, match=words):
        attend_sharded(variant, *given[:3], mask, mesh=mesh)


def test_an_empty_call_is_empty():
    given = inputs(attention.Full(), length=0)
    output, lse = attend_sharded(attention.Full(), *given[:3], Mask(), mesh=mesh_of(2, 4))
    assert output.shape == call(attention.Full(), given, Mask())[0].shape and lse.size == 0
