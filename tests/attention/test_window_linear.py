"""What only `window_linear` can say; the laws over it are in test_laws_*.py."""

import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Linear, Mask, Window, WindowLinear
from tests.attention import loops
from tests.attention.cases import LENGTH, forward, inputs, logit_scale
from tests.attention.masks import build
from tests.attention.test_linear import features
from tests.attention.tolerances import assert_close

CAUSAL = pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
SETTINGS = (
    {"window_size": 6, "query_block": 8},
    {"window_size": 4, "feature_map": "softmax", "softcap": 1.5, "temperature": 0.7, "query_block": 5},
)


def reference(variant, given, mask, choices):
    """Both kinds of weights written out, and their mixture."""
    query, key = (loops.spread(x, given) for x in (given.query, given.key))
    seen, share = loops.seen(given, mask), loops.sigmoid(np.asarray(given.gates, np.float64)).swapaxes(1, 2)
    far = np.einsum("BTNF,BSNF->BNTS", features(variant, query), features(variant, key))
    logits = logit_scale(variant) * np.einsum("BTNH,BSNH->BNTS", query, key)
    if variant.softcap is not None:
        logits = variant.softcap * np.tanh(logits / variant.softcap)
    distance = np.subtract.outer(
        np.arange(query.shape[1]) + key.shape[1] - query.shape[1], np.arange(key.shape[1])
    )
    near = seen & (abs(distance) < variant.window_size)
    logits = np.where(near, logits, -np.inf)
    greatest = logits.max(-1, keepdims=True, initial=-1e300)
    share = np.where(near.any(-1, keepdims=True), share[:, :, :, 0, None], 1)
    weight = share * normal(np.where(seen, far, 0)) + (1 - share) * normal(np.exp(logits - greatest))
    return loops.by_weights(weight, given, mean=False)


def normal(weight):
    total = weight.sum(-1, keepdims=True)
    return weight / np.where(total > 0, total, 1)


@CAUSAL
def test_its_gates_choose_between_both(causal):
    """Far gates: one part alone; a window that holds all is then full attention."""
    variant = WindowLinear(window_size=LENGTH)
    given, mask = inputs(variant), build("appended", causal, 2, LENGTH, LENGTH)
    for gate, other in ((100, Linear()), (-100, Window(window_size=LENGTH)), (-100, Full())):
        gated = given._replace(gates=gate + 0 * given.gates)
        assert_close(forward(variant, gated, mask)[0], forward(other, given._replace(gates=None), mask)[0])


def test_without_a_real_key_in_its_window_a_query_has_the_linear_part_alone():
    variant, given = WindowLinear(window_size=3), inputs(WindowLinear())
    mask = Mask(causal=True, key_valid=(jnp.arange(LENGTH) < 20)[None])
    linear = forward(Linear(), given._replace(gates=None), mask)[0]
    output = forward(variant, given, mask)[0]
    assert_close(output[:, 22:], linear[:, 22:])
    assert abs(output - linear)[:, 21].max() > 0.05
