"""What only `full` can say; the laws over it are in test_laws_*.py."""

import numpy as np

from attention import Full
from tests.attention.cases import NUM_HEADS
from tests.attention.masks import visible

SETTINGS = (
    {"query_block": 8, "key_block": 8},
    {"query_block": 16, "key_block": 5, "softcap": 1.5, "temperature": 0.7, "scale": 0.9},
    {},
)


def allowed(variant, mask, batch, query_length, key_length):
    """Whatever the mask says."""
    return visible(mask, batch, query_length, key_length)


def test_flops_of_four_tokens_by_hand():
    """Causal over 4 tokens: 1 + 2 + 3 + 4 = 10 pairs; a pair costs 2 H + 2 V forward."""
    flops = Full().flops(
        batch=3,
        query_length=4,
        key_length=4,
        num_heads=NUM_HEADS,
        num_kv_heads=2,
        head_dim=8,
        value_dim=5,
        causal=True,
    )
    assert flops.forward == 3 * NUM_HEADS * 10 * (2 * 8 + 2 * 5)
    # q.k once more, then the gradients of query, key, weights and value: three products of H and two of V.
    assert flops.backward == 3 * NUM_HEADS * 10 * (3 * 2 * 8 + 2 * 2 * 5)


def test_flops_of_cross_attention_by_hand():
    """Three queries at the end of five keys see 3, 4 and 5 of them if causal, else 5 each."""
    shape = {
        "batch": 1,
        "query_length": 3,
        "key_length": 5,
        "num_heads": 1,
        "num_kv_heads": 1,
        "head_dim": 1,
        "value_dim": 1,
    }
    assert Full().flops(**shape, causal=True).forward == 12 * 4
    assert Full().flops(**shape, causal=False).forward == 15 * 4


def test_reach_is_without_end():
    assert Full().reach == np.inf
