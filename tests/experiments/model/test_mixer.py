import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import attention
from attention import Mask
from experiments.model.mixer import AttentionMixer, in_evaluation


def mixer(variant, *, num_kv_heads=2, value_dim=3, rotate=False):
    return AttentionMixer(
        variant, num_heads=4, num_kv_heads=num_kv_heads, model_dim=8, head_dim=2, value_dim=value_dim,
        max_length=16, rotate=rotate, kernel_init=nnx.initializers.xavier_uniform(), dtype=jnp.float32,
        rngs=nnx.Rngs(0),
    )  # fmt: skip


def inputs(length=5):
    return jnp.asarray(np.random.default_rng(0).normal(size=(2, length, 8)), jnp.float32)


def shapes(module):
    return {".".join(map(str, path)): leaf.shape for path, leaf in nnx.to_flat_state(nnx.state(module))}


def test_it_is_attention_between_projections():
    variant, x = attention.make("dense"), inputs()
    built = mixer(variant)
    kernels = {name: leaf["kernel"] for name, leaf in nnx.to_pure_dict(nnx.state(built)).items()}
    query, key, value = (jnp.einsum("btd,dnh->btnh", x, kernels[n]) for n in ("query", "key", "value"))
    expected = jnp.einsum("btnv,nvd->btd", variant(query, key, value, Mask(True)), kernels["output"])
    assert np.allclose(built(x, Mask(True)), expected, atol=1e-6)
    assert shapes(built) == {
        "query.kernel": (8, 4, 2), "key.kernel": (8, 2, 2), "value.kernel": (8, 2, 3),
        "output.kernel": (4, 3, 8),
    }  # fmt: skip


def test_shared_keys_have_no_projection():
    class Shared(attention.Dense):
        @property
        def capabilities(self):
            return dataclasses.replace(attention.Dense().capabilities, shared_key=True)

        def attend(self, query, key, value, mask, *, params={}, rng=None, gates=None):  # noqa: B006
            assert key is None
            return attention.Dense().attend(query, query, value, mask)

    built = mixer(Shared(), num_kv_heads=4, rotate=True)
    assert built.key is None and "key.kernel" not in shapes(built)
    assert built(inputs(), Mask(True)).shape == (2, 5, 8)


def test_what_a_variant_learns_is_a_parameter():
    class Learned(attention.Dense):
        def init(self, rng, *, num_heads, **_):
            return {"deep": {"gain": jax.random.normal(rng, (num_heads, 1))}}

        def attend(self, query, key, value, mask, *, params={}, rng=None, gates=None):  # noqa: B006
            output, lse = super().attend(query, key, value, mask, gates=gates)
            return output * params["deep"]["gain"], lse

    built, x = mixer(Learned()), inputs()
    assert shapes(built)["learned.deep.gain"] == (4, 1)
    graph, params = nnx.split(built)
    grads = jax.jit(jax.grad(lambda p: (nnx.merge(graph, p)(x, Mask(True)) ** 2).sum()))(params)
    assert jnp.abs(grads["learned"]["deep"]["gain"][...]).min() > 0


def test_gates_are_projected_for_each_head():
    class Gated(attention.Dense):
        num_gates = 2

        def attend(self, query, key, value, mask, *, params={}, rng=None, gates=None):  # noqa: B006
            assert gates is not None and gates.shape == (2, 5, 4, 2)
            output, lse = super().attend(query, key, value, mask, gates=gates)
            return output * gates[..., :1], lse

    built = mixer(Gated())
    assert shapes(built)["gates.kernel"] == (8, 4, 2)
    assert built(inputs(), Mask(True)).shape == (2, 5, 8)


@pytest.mark.parametrize("name", attention.names())
def test_heads_whose_outputs_are_sums_are_normalised(name):
    variant = attention.make(name)
    built = mixer(variant)
    assert ("norm.scale" in shapes(built)) == variant.unnormalised
    if variant.unnormalised:
        large = mixer(variant)
        large.value.kernel[...] *= 1000.0
        assert np.allclose(large(inputs(), Mask(True)), built(inputs(), Mask(True)), rtol=1e-2, atol=1e-3)


def test_rotary_positions_break_the_symmetry_of_order():
    x, swapped = inputs(), inputs()[:, jnp.array([1, 0, 2, 3, 4])]
    last = {rotate: mixer(attention.make("dense"), rotate=rotate) for rotate in (False, True)}
    assert np.allclose(last[False](x, Mask())[:, -1], last[False](swapped, Mask())[:, -1], atol=1e-5)
    assert not np.allclose(last[True](x, Mask())[:, -1], last[True](swapped, Mask())[:, -1], atol=1e-3)


@pytest.mark.parametrize(
    "name", [x for x in attention.names() if "dropout_rate" in attention.hyperparameters(x)]
)
def test_in_evaluation_only_dropout_is_gone(name):
    assert in_evaluation(attention.make(name, dropout_rate=0.5)) == attention.make(name)


def test_dropout_of_weights_is_for_training_only():
    dropping, plain = (mixer(attention.make("dense", dropout_rate=rate)) for rate in (0.5, 0.0))
    assert (dropping(inputs(), Mask(True)) == plain(inputs(), Mask(True))).all()
    run = jax.jit(lambda rng: dropping(inputs(), Mask(True), rng))
    one, same, other = (run(jax.random.key(seed)) for seed in (0, 0, 1))
    assert (one == same).all() and not (one == other).all()
