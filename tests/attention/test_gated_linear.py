"""What only `gated_linear` can say; the laws over it are in test_laws_*.py."""

import math

import numpy as np

from tests.attention import loops

SETTINGS = (
    {"gate_temperature": 2.0, "query_block": 8},
    {"gate_temperature": 16.0, "scale": 0.7, "query_block": 5},
)


def reference(variant, given, mask, choices):
    """Token by token, a state for each head."""
    query, key, value = (loops.spread(x, given) for x in (given.query, given.key, given.value))
    scale = 1 / math.sqrt(query.shape[3]) if variant.scale is None else variant.scale
    kept = loops.keeps(given.gates[..., 0], variant.gate_temperature, mask, query.shape[:2])
    query_valid, key_valid = loops.valid(mask, query.shape[:2])
    output = np.zeros((*query.shape[:3], value.shape[3]))
    for b, n in np.ndindex(query.shape[0], query.shape[2]):
        state = np.zeros((query.shape[3], value.shape[3]))
        for t in range(query.shape[1]):
            added = scale * np.outer(key[b, t, n], value[b, t, n]) if key_valid[b, t] else 0
            state = kept[b, t, n] * state + added
            output[b, t, n] = query[b, t, n] @ state if query_valid[b, t] else 0
    return output, np.zeros(output.shape[:3])
