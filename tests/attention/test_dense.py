"""What only `dense` can say; the laws over it are in test_laws_*.py."""

import numpy as np

from attention import Dense
from tests.attention.masks import visible

SETTINGS = ({}, {"softcap": 1.5, "temperature": 0.7, "scale": 0.9})


def allowed(variant, mask, batch, query_length, key_length):
    """Whatever the mask says."""
    return visible(mask, batch, query_length, key_length)


def test_flops_count_the_whole_score_matrix():
    """Masked or not, all T S pairs are computed; the backward has four products and recomputes none."""
    shape = {
        "batch": 3,
        "query_length": 4,
        "key_length": 6,
        "num_heads": 2,
        "num_kv_heads": 1,
        "head_dim": 8,
        "value_dim": 5,
    }
    for causal in (True, False):
        flops = Dense().flops(**shape, causal=causal)
        assert flops.forward == 3 * 2 * (4 * 6) * (2 * 8 + 2 * 5)
        assert flops.backward == 3 * 2 * (4 * 6) * (2 * 2 * 8 + 2 * 2 * 5)


def test_reach_is_without_end():
    assert Dense().reach == np.inf
