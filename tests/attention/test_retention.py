"""What only `retention` can say; the laws over it are in test_laws_*.py."""

import math

import numpy as np
import pytest

from attention import Retention
from tests.attention import loops

SETTINGS = (
    {"first_memory": 2, "last_memory": 16, "query_block": 8},
    {"first_memory": 3, "last_memory": 3, "scale": 0.7, "query_block": 5},
)


def reference(variant, given, mask, choices):
    """The products of the decays between, padding without one, of what is seen."""
    query, key = loops.spread(given.query, given), loops.spread(given.key, given)
    scale = 1 / math.sqrt(query.shape[3]) if variant.scale is None else variant.scale
    weight = scale * np.einsum("BTNH,BSNH->BNTS", query, key)
    seen = loops.seen(given, mask)
    gamma = [1 - 1 / m for m in memories(variant, query.shape[2])]
    valid = (
        np.ones(key.shape[:2]) if mask.key_valid is None else np.broadcast_to(mask.key_valid, key.shape[:2])
    )
    for b, n, t, s in np.ndindex(weight.shape):
        at = t + key.shape[1] - query.shape[1]
        between = valid[b, s + 1 : at + 1] if s <= at else valid[b, max(at, 0) : s]
        weight[b, n, t, s] *= gamma[n] ** between.sum() * seen[b, 0, t, s]
    return loops.by_weights(weight, given, mean=False)


def memories(variant, num_heads):
    ratio = variant.last_memory / variant.first_memory
    return [variant.first_memory * ratio ** (n / max(num_heads - 1, 1)) for n in range(num_heads)]


def test_decays_of_the_paper():
    """Their code's: 1 - 1/32 to 1 - 1/512."""
    gamma = np.exp(Retention().log_decay(8))
    assert gamma[0] == pytest.approx(1 - 1 / 32)
    assert gamma[-1] == pytest.approx(1 - 1 / 512)
    assert (np.diff(gamma) > 0).all()
