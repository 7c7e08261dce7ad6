"""What only `performer` can say; the laws over it are in test_laws_*.py."""

import math

import numpy as np
import pytest

from attention import Full, Mask, Performer
from attention.performer import random_directions
from tests.attention import loops
from tests.attention.cases import forward, inputs

SETTINGS = (
    {"num_features": 12, "query_block": 8},
    {"num_features": 7, "kind": "relu", "scale": 0.3, "feature_seed": 3},
)


def reference(variant, given, mask, choices):
    """Every weight written out, in float64, where no exponent needs to be made smaller."""
    query, key = (features(variant, loops.spread(x, given)) for x in (given.query, given.key))
    weight = np.einsum("BTNF,BSNF->BNTS", query[0], key[0])
    seen = loops.seen(given, mask)
    heaviest = np.where(seen, key[1][:, :, None], -np.inf).max(-1, initial=-1e300, keepdims=True)
    weight = weight * np.exp(np.where(seen, key[1][:, :, None] - heaviest, -np.inf))
    return loops.by_weights(weight, given)


def features(variant, x):
    """B S N F with 1e-6 added once the greatest is 1, and the logarithm of the weight taken out: B N S."""
    width = x.shape[-1]
    x = x * math.sqrt(1 / math.sqrt(width) if variant.scale is None else variant.scale)
    projected = x @ random_directions(variant.num_features, width, variant.feature_seed).T
    if variant.kind == "relu":
        return np.maximum(projected, 0) + 1e-6, np.zeros(x.shape[:3]).swapaxes(1, 2)
    greatest = projected.max(-1)
    log_weight = greatest - (x**2).sum(-1) / 2
    return np.exp(projected - greatest[..., None]) + 1e-6, log_weight.swapaxes(1, 2)


def test_rows_are_orthogonal_in_blocks_and_as_long_as_normal_vectors():
    rows = random_directions(4000, 8, 0)
    inside = np.einsum("CFH,CGH->CFG", *2 * [rows.reshape(-1, 8, 8)])
    np.testing.assert_allclose(inside * (1 - np.eye(8)), 0, atol=1e-12)
    assert np.mean((rows**2).sum(1)) == pytest.approx(8, rel=0.03)
    np.testing.assert_allclose(np.cov(rows.T), np.eye(8), atol=0.06)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
def test_it_approaches_full_attention_as_features_grow(causal):
    """The error falls like one over the root of their number: 64 times as many, 8 times nearer."""
    given = inputs(Full())
    given = given._replace(query=given.query / 2, key=given.key / 2)  # greater ones have heavier tails
    expected, _ = forward(Full(), given, Mask(causal))

    def error(number):
        found = [forward(Performer(number, feature_seed=seed), given, Mask(causal))[0] for seed in range(4)]
        return np.sqrt(np.mean([(output - expected) ** 2 for output in found]))

    few, many = error(64), error(4096)
    assert many < 0.02
    assert 4 < few / many < 16
