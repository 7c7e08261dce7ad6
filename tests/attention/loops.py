"""References that approximate variants have in common, in plain NumPy and float64: see cases.py."""

import numpy as np

from tests.attention.masks import visible


def seen(given, mask):
    """What the mask lets be seen: B 1 T S."""
    return visible(mask, *given.query.shape[:2], given.value.shape[1])[:, None]


def spread(array, given):
    """B S K ... -> B S N ..., float64: query head n uses key head n // G."""
    array = np.asarray(array, np.float64)
    return np.repeat(array, given.query.shape[2] // array.shape[2], axis=2)


def by_weights(weight, given, mean: bool = True):
    """Output for weights B N T S at least 0 where `mean`: divided by their sums; and no log-sum-exp."""
    if mean:
        total = weight.sum(-1, keepdims=True)
        weight = weight / np.where(total > 0, total, 1)
    output = np.einsum("BNTS,BSNV->BTNV", weight, spread(given.value, given))
    return output, np.zeros(output.shape[:3])


def sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -700, 700)))


def keeps(gate, temperature, mask, shape):
    """sigmoid(gate) ** (1 / temperature) for B T N, 1 for padded keys."""
    kept = np.exp(-np.logaddexp(0, -np.asarray(gate, np.float64)) / temperature)
    if mask.key_valid is None:
        return kept
    return np.where(np.broadcast_to(mask.key_valid, shape)[..., None], kept, 1)


def valid(mask, shape):
    """Which tokens are real as queries and which as keys, for as many keys as queries: B T each."""
    return (
        np.ones(shape, bool) if x is None else np.broadcast_to(x, shape)
        for x in (mask.query_valid, mask.key_valid)
    )
