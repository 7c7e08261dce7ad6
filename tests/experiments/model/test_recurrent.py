"""Recurrent mixers against loops over tokens in NumPy, and what all of them keep."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attention import Mask
from experiments import measure
from experiments.config import settings
from experiments.model import cost, registry, ssm, transformer
from experiments.model.gru import GRU
from experiments.model.positions import Place
from experiments.model.ssm import SSM
from tests.attention.products import product_flops
from tests.experiments import small

SMALL = {"gru": GRU(), "ssm": SSM(state_dim=3)}
D, INNER, LENGTH = 8, 6, 11
ANYWHERE = Place(None, 16)  # a state does not ask where it is
ONE_LAYER = {
    "batch": 1, "query_length": 16, "key_length": 16, "num_heads": 2, "num_kv_heads": 2, "head_dim": 4,
    "value_dim": 4, "causal": True,
}  # fmt: skip
NAMES = pytest.mark.parametrize("name", SMALL)
BOTH_WAYS = pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])


def made(mixer, *, inner_dim=INNER, causal=True, dtype="float32"):
    return mixer.module(
        model_dim=D, inner_dim=inner_dim, causal=causal, kernel_init=nnx.initializers.he_normal(),
        dtype=jnp.dtype(dtype), rngs=nnx.Rngs(0),
    )  # fmt: skip


@functools.cache
def layer(name, causal=True, dtype="float32"):
    """Split, so that jit takes its parameters; random ones, also where it starts with constants."""
    graph, state = nnx.split(made(SMALL[name], causal=causal, dtype=dtype))
    draw = np.random.default_rng(1)
    return graph, jax.tree.map(lambda x: x + 0.3 * draw.normal(size=x.shape).astype(np.float32), state)


@functools.cache
def program(name, causal=True, dtype="float32"):
    graph, _ = layer(name, causal, dtype)

    def call(state, x, valid=None):
        return nnx.merge(graph, state)(x, Mask.for_self(causal=causal, valid=valid))

    return jax.jit(call)


def run(name, x, valid=None, causal=True, dtype="float32"):
    return np.asarray(program(name, causal, dtype)(layer(name, causal, dtype)[1], x, valid), np.float64)


def inputs(length=LENGTH, seed=0, batch=2):
    return np.random.default_rng(seed).normal(size=(batch, length, D)).astype(np.float32)


SCAN = jax.jit(ssm.selective_scan, static_argnames="reverse")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(name, x, valid, causal):
    """The layer's definition in float64, token after token; two-sided: what is read backwards beside it."""
    pure = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), nnx.to_pure_dict(layer(name, causal)[1]))
    one_way = {"gru": gru_by_hand, "ssm": ssm_by_hand}[name]
    states = [one_way(pure, "ahead", x, valid)]
    if not causal:
        states.append(one_way(pure, "back", x[:, ::-1], valid[:, ::-1])[:, ::-1])
    output = pure["output" if name == "gru" else "out_proj"]["kernel"]
    return np.concatenate(states, -1) @ output


def gru_by_hand(pure, side, x, valid):
    own = pure[side]
    state, states = np.zeros((x.shape[0], INNER)), np.zeros((*x.shape[:2], INNER))
    for t in range(x.shape[1]):
        arrived = np.split(x[:, t] @ own["dense_i"]["kernel"] + own["dense_i"]["bias"], 3, -1)
        kept = np.split(state @ own["dense_h"]["kernel"], 3, -1)
        reset, update = (sigmoid(arrived[i] + kept[i]) for i in (0, 1))
        new = (1 - update) * np.tanh(arrived[2] + reset * kept[2]) + update * state
        state = np.where(valid[:, t, None], new, state)
        states[:, t] = np.where(valid[:, t, None], new, 0)
    return states


def ssm_by_hand(pure, side, x, valid):
    own, size = pure[side], SMALL["ssm"].state_dim
    both = x @ pure["in_proj"]["kernel"]
    inner, gate = np.split(both * sigmoid(both), 2, -1)
    a = -np.exp(own["A_log"].reshape(INNER, size))
    state, outputs = np.zeros((x.shape[0], INNER, size)), np.zeros((*x.shape[:2], INNER))
    for t in range(x.shape[1]):
        low, b, c = np.split(inner[:, t] @ own["x_proj"]["kernel"], [1, 1 + size], -1)
        delta = np.log1p(np.exp(low @ own["dt_proj"]["kernel"] + own["dt_proj"]["bias"]))[..., None]
        new = np.exp(delta * a) * state + delta * b[:, None] * inner[:, t, :, None]
        state = np.where(valid[:, t, None, None], new, state)
        y = (new * c[:, None]).sum(-1) + own["D"] * inner[:, t]
        outputs[:, t] = np.where(valid[:, t, None], y * gate[:, t], 0)
    return outputs


@NAMES
@BOTH_WAYS
def test_values_are_those_of_a_loop_and_padding_makes_no_step(name, causal):
    x, valid = inputs(), np.random.default_rng(2).random((2, LENGTH)) < 0.6
    found = run(name, x, valid, causal)
    np.testing.assert_allclose(found, by_hand(name, x, valid, causal), atol=2e-5)
    assert (found[~valid] == 0).all()
    garbage = np.where(valid[..., None], x, 1e3)
    np.testing.assert_allclose(run(name, garbage, valid, causal), found, atol=1e-6)


@NAMES
@BOTH_WAYS
def test_gradients_are_finite_differences(name, causal):
    """Along a random direction in all parameters and the input, against the loop."""
    graph, state = layer(name, causal)
    x, valid = inputs(5), jnp.asarray([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], bool)
    weights = np.random.default_rng(3).normal(size=x.shape)

    def loss(state, x):
        return (nnx.merge(graph, state)(x, Mask.for_self(causal=causal, valid=valid)) * weights).sum()

    draw, step = np.random.default_rng(4), 3e-2
    way = jax.tree.map(lambda leaf: draw.normal(size=leaf.shape).astype(np.float32), (state, x))
    slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))(state, x)
    found = sum(jax.tree.leaves(jax.tree.map(lambda g, w: (g * w).sum(), slopes, way)))
    value = jax.jit(lambda by: loss(*jax.tree.map(lambda at, w: at + by * w, (state, x), way)))
    # Five points, so that the step may be large enough for float32.
    near, far = (value(by * step) - value(-by * step) for by in (1, 2))
    np.testing.assert_allclose(found, (8 * near - far) / (12 * step), rtol=2e-3, atol=2e-3)


@NAMES
def test_what_comes_later_changes_nothing_before_and_two_sides_are_seen(name):
    x, changed = inputs(), inputs()
    changed[:, 5:] = 9
    assert (run(name, x)[:, :5] == run(name, changed)[:, :5]).all()
    assert (run(name, x)[:, 5:] != run(name, changed)[:, 5:]).all()
    assert (run(name, x, causal=False) != run(name, changed, causal=False)).all()
    changed = inputs()
    changed[:, 0] = 9
    assert (run(name, x)[:, -1] != run(name, changed)[:, -1]).any()


@NAMES
def test_bfloat16_is_near(name):
    x = inputs().astype(jnp.bfloat16)
    assert program(name, True, "bfloat16")(layer(name)[1], x).dtype == jnp.bfloat16
    np.testing.assert_allclose(run(name, x, dtype="bfloat16"), run(name, np.asarray(x, np.float32)), atol=0.1)


@pytest.mark.parametrize("length", [0, 1, ssm.CHUNK - 1, ssm.CHUNK + 1])
def test_the_scan_in_chunks_is_the_scan(length):
    """In both directions, from a state that is given, at any length, to the last state."""
    draw = np.random.default_rng(0)
    x, delta, b, c = (draw.normal(size=(2, length, n)).astype(np.float32) for n in (INNER, INNER, 3, 3))
    delta, a = np.log1p(np.exp(delta)), -np.exp(draw.normal(size=(INNER, 3)).astype(np.float32))
    start = draw.normal(size=(2, INNER, 3)).astype(np.float32)
    for order in (1, -1):
        state, outputs = start.astype(np.float64), np.zeros((2, length, INNER))
        for t in range(length)[::order]:
            state = np.exp(delta[:, t, :, None] * a) * state
            state += (delta * x)[:, t, :, None] * b[:, t, None]
            outputs[:, t] = (state * c[:, t, None]).sum(-1)
        y, last = SCAN(x, delta, a, b, c, start, reverse=order < 0)
        np.testing.assert_allclose(y, outputs, atol=1e-4)
        np.testing.assert_allclose(last, state, atol=1e-4)


@NAMES
def test_any_length(name):
    for length in (0, 1):
        assert run(name, inputs(length)).shape == (2, length, D)


@pytest.mark.parametrize("mixer", [GRU(), SSM(state_dim=32)], ids=lambda mixer: mixer.name)
def test_memory_is_linear_in_the_length(mixer):
    graph, state = nnx.split(made(mixer, inner_dim=32))

    def temporaries(length):
        x = jax.ShapeDtypeStruct((1, length, D), jnp.float32)
        slope = jax.grad(lambda s, x: nnx.merge(graph, s)(x, Mask(True)).sum(), argnums=(0, 1))
        return measure.compiled_memory(jax.jit(slope).lower(state, x).compile())["temporaries"]

    short, long = temporaries(2048), temporaries(8192)
    assert long <= 4**1.15 * short
    assert long < 8192 * 32 * 32 * 4  # the states of all tokens, of which those of one chunk are there


def test_products_are_counted():
    """Those of a layer by the model, which knows kernels; a state-space layer's sums are none to XLA."""
    fields = ("model.num_layers=2", "model.layers=attention,gru", "attention.name=ssm")
    config = small.load(*fields)
    task, mixers = settings.task(config), settings.mixers(config)
    built = transformer.build(config.model, mixers, task, nnx.Rngs(0))
    found = cost.flops(config, mixers, task, nnx.to_pure_dict(nnx.state(built)))
    assert found["attention"] == mixers[0].flops(**ONE_LAYER).forward * 3
    assert found["attention"] == 3 * 4 * task.length * 8 * mixers[0].state_dim
    tokens = jnp.zeros((1, task.length), jnp.int32)
    assert product_flops(built, tokens) == found["forward"] - found["attention"] // 3
    assert found["training"] == 3 * found["forward"]


@pytest.mark.parametrize("fields", [{"state_dim": 0}, {"state_dim": 1025}, {"dim": 3}])
def test_wrong_fields_are_refused(fields):
    with pytest.raises(ValueError, match="state_dim"):
        registry.make("ssm", **fields)


def test_a_greatest_state_runs():
    graph, state = nnx.split(made(SSM(state_dim=ssm.WIDEST_STATE), inner_dim=2))
    y = jax.jit(lambda state, x: nnx.merge(graph, state)(x, Mask(True)))(state, jnp.ones((1, 2, D)))
    assert np.isfinite(y).all()


@NAMES
def test_what_cannot_be_honoured_is_refused(name):
    built, x = nnx.merge(*layer(name)), jnp.asarray(inputs())
    with pytest.raises(NotImplementedError, match=f"{name} cannot honour the mask's query_segments"):
        built(x, Mask.for_self(causal=True, segments=jnp.zeros((2, LENGTH), jnp.int32)))
    with pytest.raises(NotImplementedError, match=r"built with causal=True: mask\.causal=False"):
        built(x, Mask())
    two_sided = nnx.merge(*layer(name, False))
    for call in (
        lambda: two_sided.prefill(x, None, 16),
        lambda: two_sided.step(x[:, :1], built.init_cache(2, 16), ANYWHERE),
    ):
        with pytest.raises(NotImplementedError, match="reads what is yet to come"):
            call()


@NAMES
def test_steps_are_the_pass_over_all(name):
    """After a prompt that is padded at its end, token by token, each row from where its own ends."""
    (graph, state), x, lengths = layer(name), jnp.asarray(inputs()), np.array([4, 2])
    prefill, step = (
        jax.jit(
            lambda state, *rest, method=method, more=more: getattr(nnx.merge(graph, state), method)(
                *rest, *more
            )
        )
        for method, more in (("prefill", (16,)), ("step", (ANYWHERE,)))
    )
    y, cache = prefill(state, x[:, :4], lengths)
    valid, expected = np.arange(4) < lengths[:, None], run(name, x)
    np.testing.assert_allclose(y, np.where(valid[..., None], expected[:, :4], 0), atol=1e-5)
    for t in range(LENGTH - 4):
        at = lengths + t
        y, cache = step(state, x[np.arange(2), at][:, None], cache)
        np.testing.assert_allclose(y[:, 0], expected[np.arange(2), at], atol=1e-5)
    _, whole = prefill(state, x, None)
    empty = nnx.merge(graph, state).init_cache(2, 16)
    assert jax.tree.map(jnp.shape, empty) == jax.tree.map(jnp.shape, whole)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(empty))


def test_it_starts_as_in_the_papers():
    """A is -1 .. -N in each channel, steps are between 0.001 and 0.1; recurrent kernels are orthogonal."""
    own = made(SSM(state_dim=5), inner_dim=64).ahead
    decays = np.exp(own.A_log[...]).reshape(64, 5)
    np.testing.assert_allclose(decays, np.tile(np.arange(1, 6), (64, 1)), rtol=1e-6)
    steps = np.log(jax.nn.softplus(own.dt_proj.bias[...]))
    assert (
        np.log(1e-3) - 1e-3 < steps.min() < np.log(3e-3) and np.log(4e-2) < steps.max() < np.log(1e-1) + 1e-3
    )
    kernel = made(GRU(), inner_dim=4).ahead.dense_h.kernel[...]
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(4), atol=1e-5)


@BOTH_WAYS
def test_a_gru_is_torchs_with_the_same_weights(causal):
    """Outputs and gradients, by tokens and weights; skipped where the extra `peers` is not installed."""
    torch = pytest.importorskip("torch")
    graph, state = layer("gru", causal)
    pure, lengths = nnx.to_pure_dict(state), [LENGTH, 7]
    theirs = torch.nn.GRU(D, INNER, batch_first=True, bidirectional=not causal)
    for side, end in (("ahead", ""), ("back", "_reverse"))[: 1 if causal else 2]:
        arrays = {
            "weight_ih": pure[side]["dense_i"]["kernel"].T, "bias_ih": pure[side]["dense_i"]["bias"],
            "weight_hh": pure[side]["dense_h"]["kernel"].T, "bias_hh": np.zeros(3 * INNER, np.float32),
        }  # fmt: skip
        for name, array in arrays.items():
            getattr(theirs, f"{name}_l0{end}").data.copy_(torch.from_numpy(np.array(array)))
    x = torch.from_numpy(inputs()).requires_grad_()
    output = torch.from_numpy(np.array(pure["output"]["kernel"])).requires_grad_()
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    y = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)[0] @ output
    weights = np.random.default_rng(3).normal(size=y.shape).astype(np.float32)
    (y * torch.from_numpy(weights)).sum().backward()

    def loss(state, x):
        valid = jnp.arange(LENGTH) < jnp.asarray(lengths)[:, None]
        found = nnx.merge(graph, state)(x, Mask.for_self(causal=causal, valid=valid))
        return (found * weights).sum(), found

    slopes, found = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(state, jnp.asarray(inputs()))
    np.testing.assert_allclose(found, y.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(slopes[1], x.grad.numpy(), atol=1e-4)
    of_ours = nnx.to_pure_dict(slopes[0])
    np.testing.assert_allclose(of_ours["output"]["kernel"], output.grad.numpy(), atol=1e-4)
    for name, kernel in (("weight_ih_l0", "dense_i"), ("weight_hh_l0", "dense_h")):
        grad = getattr(theirs, name).grad.numpy().T
        np.testing.assert_allclose(of_ours["ahead"][kernel]["kernel"], grad, atol=1e-4)
