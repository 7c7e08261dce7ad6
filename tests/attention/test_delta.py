"""What only `delta` can say; the laws over it are in test_laws_*.py."""

import jax.numpy as jnp
import numpy as np
import pytest

from attention import Delta, Mask
from attention.delta import inverse_of_one_plus
from tests.attention import loops
from tests.attention.cases import forward, inputs
from tests.attention.tolerances import assert_close

SETTINGS = (
    {"gate_temperature": 2.0, "query_block": 8},
    {"gated": False, "query_block": 5},
)


def reference(variant, given, mask, choices):
    """Token by token, a state for each head."""
    query, key, value = (loops.spread(x, given) for x in (given.query, given.key, given.value))
    query, key = (x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6) for x in (query, key))
    gates = np.asarray(given.gates, np.float64)
    kept = loops.keeps(gates[..., 0], variant.gate_temperature, mask, query.shape[:2])
    kept = kept if variant.gated else np.ones_like(kept)
    query_valid, key_valid = loops.valid(mask, query.shape[:2])
    output = np.zeros((*query.shape[:3], value.shape[3]))
    for b, n in np.ndindex(query.shape[0], query.shape[2]):
        state = np.zeros((query.shape[3], value.shape[3]))
        for t in range(query.shape[1]):
            state = kept[b, t, n] * state
            if key_valid[b, t]:
                wanted = value[b, t, n] - key[b, t, n] @ state
                state = state + loops.sigmoid(gates[b, t, n, -1]) * np.outer(key[b, t, n], wanted)
            output[b, t, n] = query[b, t, n] @ state if query_valid[b, t] else 0
    return output, np.zeros(output.shape[:3])


@pytest.mark.parametrize("width", [1, 2, 5, 8, 64])
def test_the_inverse_of_a_block_is_numpys(width):
    """At its worst too: the same key again and again, written with full strength."""
    drawn = np.tril(np.random.default_rng(0).normal(size=(2, 3, width, width)) / 4, -1)
    for system in (drawn, np.broadcast_to(np.tril(np.ones((width, width)), -1), (1, width, width))):
        found = inverse_of_one_plus(jnp.asarray(system, jnp.float32))
        assert_close(found, np.linalg.inv(np.eye(width) + system))


def test_it_overwrites_what_it_held_for_a_key():
    """Written with full strength under one key twice, the state answers the second value alone."""
    variant = Delta(gated=False, query_block=4)
    given = inputs(variant)
    given = given._replace(
        key=given.key[:, :1] + 0 * given.key, query=given.query[:, :1] + 0 * given.query,
        gates=jnp.full_like(given.gates, 40.0),
    )  # fmt: skip
    output, _ = forward(variant, given, Mask(causal=True))
    last = given.value[:, -1:] + 0 * given.value
    answers, _ = forward(variant, given._replace(value=last), Mask(causal=True))
    assert_close(output[:, -1], answers[:, 0])
