"""A look at a real model finds what is planted in it, and nothing in a sound one."""

import copy
import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Attention, Full, Limit, Mask, attention_matrix, registry
from experiments.config import settings
from experiments.diagnose import inside
from experiments.diagnose.look import Looker
from experiments.training import train
from tests.experiments import small

# Heads that differ and are not uniform, without any training.
FIELDS = (
    "model.num_layers=2", "model.num_heads=4", "model.model_dim=32", "model.head_dim=8", "model.mlp_dim=32",
    "model.init=he", "task.length=32", "train.batch_size=4",
)  # fmt: skip


def looker(*fields):
    config = small.load(*FIELDS, *fields)
    return Looker(config, settings.task(config))


@pytest.fixture(scope="module")
def sound():
    """A look and sharpened parameters: queries three times as long."""
    own = looker()
    params = train.init_state(own.config, own.task, 0).params
    for layer in params["blocks"].values():
        mixer = layer["mixer"]["branch"]
        mixer["query"]["kernel"] = 3 * mixer["query"]["kernel"]
    return own, params


def planted(params, layer, name, change):
    """Another kernel of a mixer, D heads H."""
    changed = copy.deepcopy(jax.device_get(params))
    mixer = changed["blocks"][layer]["mixer"]["branch"]
    mixer[name]["kernel"] = change(mixer[name]["kernel"])
    return changed


def first_layers(params):
    return sorted(params["blocks"])


def test_nothing_is_found_in_a_sound_model(sound):
    own, params = sound
    look = own(0, 1, params)
    assert look["findings"] == [] and look["step"] == 1
    assert len(look["heads"]) == 2 and all(len(each["entropy"]) == 4 for each in look["heads"].values())


def test_a_uniform_head_is_found(sound):
    own, params = sound
    layer = first_layers(params)[1]
    blank = planted(params, layer, "query", lambda kernel: kernel * (np.arange(4) != 2)[:, None])
    (told,) = own(0, 1, blank)["findings"]
    assert told.startswith("Layer 1, head 2 has become near uniform: 0.0%")


def test_twins_are_found(sound):
    own, params = sound
    layer = first_layers(params)[0]
    twins = params
    for name in ("query", "key"):
        twins = planted(twins, layer, name, lambda kernel: kernel[:, [0, 1, 2, 1]])
    (told,) = own(0, 1, twins)["findings"]
    assert told == "Layer 0, heads 1 and 3 attend alike: 0.0% of their weight differs."


def test_an_exploding_part_is_found(sound):
    """The same weights by short queries and long keys, whose length is the gradient of the queries'."""
    own, params = sound
    layer = first_layers(params)[1]
    loud = planted(params, layer, "query", lambda kernel: kernel / 1000)
    loud = planted(loud, layer, "key", lambda kernel: kernel * 1000)
    (told,) = own(0, 1, loud)["findings"]
    assert told.startswith("Layer 1, the gradient of query explodes"), told


def test_an_unbalanced_hash_is_found():
    fields = ("attention.num_buckets=8", "attention.chunk_size=16", "attention.temperature=0.2")
    balanced = looker("attention.name=lsh", *fields)
    params = train.init_state(balanced.config, balanced.task, 0).params
    assert not any("buckets" in line for line in balanced(0, 1, params)["findings"])
    own = looker("attention.name=lsh", *fields, "model.positions=none")  # rotary ones would hash by place
    params = jax.device_get(train.init_state(own.config, own.task, 0).params)
    layer = first_layers(params)[0]
    norm = params["blocks"][layer]["mixer"]["norm"]
    norm["bias"] = norm["bias"] + 50  # all tokens point the same way
    told = own(0, 1, params)["findings"]
    named = [line for line in told if line.startswith("Layer 0") and "below 2 is too few" in line]
    assert len(named) == 4, told


def test_pools_and_padding():
    """What lies on pools is a share; a task that pads is looked at without its padding."""
    task = (
        "task.name=listops",
        *(f"task.{field}={value}" for field, value in small.TASKS["listops"].items()),
    )
    fields = (*small.SIZE, "attention.name=pooled", "attention.window_size=4", *task)
    config = settings.load(small.BASE, [f"--config.{field}" for field in fields])
    own = Looker(config, settings.task(config))
    look = own(0, 1, train.init_state(own.config, own.task, 0).params)
    for layer in look["observed"].values():
        assert layer["on_pools"]["meaning"] == "share of the weight on pools"
        assert all(0 < share < 1 for share in layer["on_pools"]["values"])
    _, valid = own.sample
    assert valid is not None and not valid.all()


def test_weights_are_those_of_the_model(sound):
    """With them the first layer's output is what the model has."""
    own, params = sound
    tokens, _ = own.sample
    inputs = own.programs.inputs(params, tokens, None)
    (variant,) = settings.mixers(own.config)
    assert list(inputs) == [0, 1]
    for layer, each in inputs.items():
        expected = attention_matrix(variant, each.query, each.key, Mask(causal=own.task.causal))
        weights = dict(own.weights(params, tokens, None))[layer].matrix
        np.testing.assert_allclose(weights, expected, atol=1e-6)
        # A rotary model turns them, which changes no length.
        lengths = [jnp.linalg.norm(x, axis=-1) for x in (each.query, each.plain_query)]
        np.testing.assert_allclose(*lengths, rtol=1e-5)


def test_parts_of_the_gradient_make_up_the_blocks():
    """Nothing of a layer is left out but norms."""
    own = looker("model.conv_width=3")
    params = train.init_state(own.config, own.task, 0).params
    slope = jax.jit(train.gradient(own.config, own.task))
    gradient = slope(params, own.batch, jax.random.key(0))[0]
    found = inside.norms(gradient)
    assert set(found) == {"query", "key", "value", "output", "feed_forward", "convolution"}
    assert all(list(each) == [0, 1] for each in found.values())
    without = copy.deepcopy(jax.device_get(gradient["blocks"]))
    for layer in without.values():
        for residual in layer.values():
            residual.pop("norm", None)
    total = sum(float(x) ** 2 for own in found.values() for x in own.values())
    np.testing.assert_allclose(total, sum((x**2).sum() for x in jax.tree.leaves(without)), rtol=1e-4)


def test_norms_beyond_the_squares_of_float32():
    huge = {"blocks": {0: {"mixer": {"branch": {"query": {"kernel": jnp.full((3, 4), 1e25)}}}}}}
    assert float(inside.norms(huge)["query"][0]) == pytest.approx(12**0.5 * 1e25, rel=1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        ("attention.dropout_rate=0.2", "model.dropout_rate=0.1", "optimizer.ema_decay=0.9"),
        ("model.num_kv_heads=2", "model.compute_dtype=bfloat16", "model.remat=True"),
        ("train.num_microbatches=2", "train.entropy_penalty=0.1", "model.mlp_dim=0"),
    ],
    ids=lambda fields: fields[0],
)
def test_any_model_is_looked_at(fields):
    own = looker(*fields)
    look = own(0, 1, train.init_state(own.config, own.task, 0).params)
    assert all(None not in values for layer in look["heads"].values() for values in layer.values())
    assert all(norm > 0 for part in look["gradients"].values() for norm in part.values())


@dataclasses.dataclass(frozen=True)
class Signed(Attention):
    """A variant of somebody else: without softmax or temperature, weights of both signs, and a gate."""

    name: ClassVar[str] = "signed"
    num_gates: ClassVar[int] = 1

    @property
    def capabilities(self):
        return dataclasses.replace(Full().capabilities, exact=False)

    @property
    def reach(self):
        return math.inf

    def limit(self, length):
        return Limit(None, "never")

    def flops(self, **sizes):
        return Full().flops(**sizes)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        logits = jnp.einsum("BTNH,BSNH->BNTS", query, key) * jnp.tanh(gates[..., 0]).swapaxes(1, 2)[..., None]
        return jnp.einsum("BNTS,BSNV->BTNV", jnp.tril(logits), value)


def test_a_variant_that_somebody_adds_is_looked_at(monkeypatch):
    monkeypatch.setitem(registry.VARIANTS, "signed", Signed)
    own = looker("attention.name=signed")
    look = own(0, 1, train.init_state(own.config, own.task, 0).params)
    assert {"gates", "query"} <= set(look["gradients"]) and look["observed"] == {"0": {}, "1": {}}
    for layer in look["heads"].values():
        assert all(0 < value < 1 for name in ("evenness", "from_uniform") for value in layer[name])
    ((_, first), _) = own.weights(train.init_state(own.config, own.task, 0).params, *own.sample)
    assert (first.matrix < 0).any() and first.uniform is None


def test_a_uniform_hash_is_uniform_over_its_buckets():
    """A head that weighs alike what its hash lets it see is called even, however little that is."""
    own = looker("attention.name=lsh", "attention.num_buckets=4", "attention.chunk_size=16")
    params = jax.device_get(train.init_state(own.config, own.task, 0).params)
    hot = looker(
        "attention.name=lsh",
        "attention.num_buckets=4",
        "attention.chunk_size=16",
        "attention.temperature=1e6",
    )
    for look, even in ((own(0, 1, params), False), (hot(0, 1, params), True)):
        for layer in look["heads"].values():
            assert all((value < 1e-3) == even for value in layer["from_uniform"] if value is not None)


def test_a_look_is_the_same_each_time(sound):
    own, params = sound
    one, other = ({**own(0, 1, params), "seconds": 0} for _ in range(2))
    assert one == other
