import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.config import settings
from experiments.model import transformer
from experiments.tasks.recall import Recall
from tests.experiments import small


@dataclasses.dataclass(frozen=True)
class Encoding(Recall):
    """An encoder's task."""

    causal = False
    name = "encoding"


@dataclasses.dataclass(frozen=True)
class Pooling(Encoding):
    """One answer for a sequence."""

    head = "pooled"


TOKENS = jnp.asarray(np.random.default_rng(0).integers(16, size=(2, 12)), jnp.int32)


@functools.cache
def build(*fields, task=Recall, seed=0) -> Any:
    config = small.load("model.init_std=0.5", *fields)
    fields = config.task.to_dict()
    del fields["name"]
    return transformer.build(config.model, settings.mixers(config), task(**fields), nnx.Rngs(seed))


@jax.jit
def _run(built, *arguments):
    return built(*arguments)


def run(built, *arguments):
    return np.asarray(_run(built, *arguments))


def num_parameters(built):
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(built)))


EVERYTHING = ("model.conv_width=3", "model.positions=learned", "model.norm=post")


@pytest.mark.parametrize("fields", [(), EVERYTHING])
def test_a_decoder_sees_no_later_token(fields):
    built = build(*fields)
    changed = TOKENS.at[:, 7:].set((TOKENS[:, 7:] + 1) % 16)
    before, after = run(built, TOKENS), run(built, changed)
    assert np.allclose(before[:, :7], after[:, :7], atol=1e-6)
    assert (np.abs(before[:, 7:] - after[:, 7:]).max(-1) > 1e-3).all()


def test_an_encoder_sees_later_tokens():
    built = build(task=Encoding)
    changed = TOKENS.at[:, 7:].set((TOKENS[:, 7:] + 1) % 16)
    assert (np.abs(run(built, TOKENS) - run(built, changed)).max(-1) > 1e-4).all()


@pytest.mark.parametrize("task", [Recall, Encoding, Pooling])
@pytest.mark.parametrize("at_front", [False, True])
def test_padding_changes_nothing(task, at_front):
    built = build("model.conv_width=3", "model.positions=rotary", task=task)
    width = (3, 0) if at_front else (0, 3)
    padded = jnp.pad(TOKENS, ((0, 0), width), constant_values=5)
    valid = jnp.pad(jnp.ones_like(TOKENS, bool), ((0, 0), width))
    found, expected = run(built, padded, valid), run(built, TOKENS)
    if task.head == "token":
        found = found[:, width[0] : width[0] + 12]
    assert np.allclose(found, expected, atol=1e-5)


def test_the_pooled_head_answers_once_and_does_not_see_order():
    built = build("model.positions=none", task=Pooling)
    found = run(built, TOKENS)
    assert found.shape == (2, 16)
    assert np.allclose(found, run(built, TOKENS[:, ::-1]), atol=1e-5)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_positions_show_order(positions):
    built = build(f"model.positions={positions}", task=Pooling)
    assert not np.allclose(run(built, TOKENS), run(built, TOKENS[:, ::-1]), atol=1e-3)


def test_learned_positions_end():
    built = build("model.positions=learned")
    with pytest.raises(ValueError, match="17 tokens, but learned positions end at max_length=16"):
        built(jnp.zeros((1, 17), jnp.int32))
    assert build("model.positions=learned", "task.eval_lengths=20")(jnp.zeros((1, 17), jnp.int32)).shape


def test_before_or_after_norm():
    pre, post = (build(f"model.norm={norm}") for norm in transformer.NORMS)
    assert pre.norm is not None and post.norm is None
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 12, 8)), jnp.float32)
    mixed = post.blocks[0].mixer(x, transformer.Mask(True), None, rng=None)
    assert np.allclose(mixed.mean(-1), 0, atol=1e-5) and np.allclose(mixed.var(-1), 1, atol=1e-2)
    branch, norm = pre.blocks[0].feed_forward.branch, pre.blocks[0].feed_forward.norm
    assert np.allclose(pre.blocks[0].feed_forward(x, rng=None), x + branch(norm(x)), atol=1e-6)


def test_the_convolution_by_hand():
    convolution = transformer.Convolution(3, 2, dtype=jnp.float32, rngs=nnx.Rngs(0))
    x, kernel = np.random.default_rng(0).normal(size=(1, 6, 2)), np.asarray(convolution.kernel[...])
    found = convolution(jnp.asarray(x, jnp.float32), None)
    for channel in range(2):
        expected = np.convolve(x[0, :, channel], kernel[::-1, channel])[:6]
        assert np.allclose(found[0, :, channel], expected, atol=1e-6)
    assert build("model.conv_width=0").blocks[0].convolution is None


def test_no_feed_forward():
    built = build("model.mlp_dim=0")
    assert built.blocks[0].feed_forward is None
    assert num_parameters(build("model.mlp_dim=8")) > num_parameters(built)


def test_fewer_key_heads_and_wider_values():
    kernels = nnx.to_pure_dict(nnx.state(build("model.num_kv_heads=1", "model.value_dim=6")))
    mixer = kernels["blocks"][0]["mixer"]["branch"]
    assert mixer["key"]["kernel"].shape == (8, 1, 4) and mixer["value"]["kernel"].shape == (8, 1, 6)
    assert mixer["output"]["kernel"].shape == (2, 6, 8)


def test_bfloat16_computes_over_float32_parameters():
    exact, rounded = (build(f"model.compute_dtype={dtype}") for dtype in transformer.DTYPES)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(nnx.state(rounded))} == {"float32"}
    found, expected = run(rounded, TOKENS), run(exact, TOKENS)
    assert found.dtype == np.float32
    assert not (found == expected).all() and np.allclose(found, expected, atol=0.1)


def test_rematerialisation_changes_no_gradient():
    def gradients(remat):
        graph, params = nnx.split(build(f"model.remat={remat}", "model.dropout_rate=0.1"))
        key = jax.random.key(0)
        grad = jax.grad(lambda p: (nnx.merge(graph, p)(TOKENS, None, key) ** 2).sum())
        return jax.jit(grad)(params), str(jax.make_jaxpr(grad)(params))

    (plain, plain_program), (again, program) = gradients(False), gradients(True)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), plain, again)
    assert "remat" in program and "remat" not in plain_program


def test_dropout_is_for_training_only():
    built, plain = build("model.dropout_rate=0.5"), build()
    assert (run(built, TOKENS) == run(plain, TOKENS)).all()
    one, same, other = (run(built, TOKENS, None, jax.random.key(seed)) for seed in (0, 0, 1))
    assert (one == same).all() and (one != other).any()
    assert (run(plain, TOKENS, None, jax.random.key(0)) == run(plain, TOKENS)).all()


@pytest.mark.parametrize(("init", "std"), [("xavier", 0.25), ("he", 0.25), ("normal", 0.01)])
def test_inits_have_their_spread(init, std):
    built = build(
        f"model.init={init}", "model.init_std=0.01", "model.model_dim=32", "model.mlp_dim=32",
        "model.num_layers=1",
    )  # fmt: skip
    # xavier: sqrt(2 / (32 + 32)) but .177; he: sqrt(2 / 32)
    expected = (2 / 64) ** 0.5 if init == "xavier" else std
    assert np.isclose(built.blocks[0].feed_forward.branch.wide.kernel[...].std(), expected, rtol=0.1)
    assert np.isclose(built.embedding.embedding[...].std(), 0.01, rtol=0.1)


def test_seeds_differ():
    assert not (run(build(), TOKENS) == run(build(seed=1), TOKENS)).any()
