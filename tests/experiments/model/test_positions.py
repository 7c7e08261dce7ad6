import jax.numpy as jnp
import numpy as np
import pytest

from experiments.model.positions import rotary, sinusoidal


def test_sinusoidal_by_hand():
    table = sinusoidal(3, 5)
    wave = 10_000 ** (-1 / 3)
    assert table.dtype == jnp.float32
    assert np.allclose(table[0], [0, 0, 0, 1, 1])
    assert np.allclose(table[2, [0, 1, 3]], [np.sin(2), np.sin(2 * wave), np.cos(2)])


def test_rotary_keeps_lengths_and_sees_distances_only():
    draw = np.random.default_rng(0)
    query, key = (
        jnp.asarray(np.broadcast_to(draw.normal(size=(1, 1, 1, 8)), (1, 20, 1, 8)), jnp.float32)
        for _ in range(2)
    )
    turned_query, turned_key = rotary(query)[0, :, 0], rotary(key)[0, :, 0]
    assert np.allclose(turned_query[0], query[0, 0, 0])
    assert np.allclose(np.linalg.norm(turned_query, axis=-1), np.linalg.norm(query[0, 0, 0]), rtol=1e-6)
    products = turned_query @ turned_key.T
    assert np.allclose(products[1:, 1:], products[:-1, :-1], atol=1e-5)
    assert not np.allclose(products[0, 1:], products[0, :-1], atol=1e-2)


def test_rotary_computes_in_float32_and_gives_back_the_dtype():
    x = jnp.ones((1, 300, 1, 4), jnp.bfloat16)
    exact = rotary(x.astype(jnp.float32)).astype(jnp.bfloat16)
    assert rotary(x).dtype == jnp.bfloat16
    assert (rotary(x) == exact).all()


def test_rotary_refuses_an_odd_width():
    with pytest.raises(ValueError, match="even head_dim, got 3"):
        rotary(jnp.ones((1, 2, 1, 3)))
