"""What only `linear` can say; the laws over it are in test_laws_*.py."""

import numpy as np
import pytest

from attention import Linear, Mask
from tests.attention import loops
from tests.attention.cases import LENGTH, cotangents, evaluate, inputs, run
from tests.attention.tolerances import assert_close

SETTINGS = ({"query_block": 8}, {"feature_map": "relu"}, {"feature_map": "softmax", "query_block": 5})


def reference(variant, given, mask, choices):
    """Every weight written out."""
    query, key = (features(variant, loops.spread(x, given)) for x in (given.query, given.key))
    weight = np.einsum("BTNF,BSNF->BNTS", query, key)
    return loops.by_weights(np.where(loops.seen(given, mask), weight, 0), given)


def features(variant, x):
    match variant.feature_map:
        case "elu":
            made = np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
        case "relu":
            made = np.maximum(x, 0)
        case _:
            made = np.exp(x - x.max(-1, keepdims=True))
            made = made / made.sum(-1, keepdims=True)
    return made + 1e-6


@pytest.mark.parametrize("feature_map", ["elu", "relu", "softmax"])
def test_it_is_a_mean_also_of_features_that_vanish(feature_map):
    """Of equal values every row gives that value, however negative queries and keys are."""
    variant = Linear(feature_map=feature_map)
    given = inputs(variant)
    given = given._replace(query=-50 + 0 * given.query, key=-50 + given.key, value=1 + 0 * given.value)
    assert_close(run(variant, given, Mask(causal=True)).output, np.ones((*given.query.shape[:3], 3)))


def test_block_sizes_change_nothing():
    given, mask = inputs(Linear()), Mask(causal=True)
    expected = run(Linear(query_block=LENGTH), given, mask)
    for block in (1, 8, 36):
        result = evaluate(Linear(query_block=block), given, mask, *cotangents(given))
        assert_close(result.output, expected.output)
        for name in ("query", "key", "value"):
            assert_close(result.gradients[name], expected.gradients[name])
