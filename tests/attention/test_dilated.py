"""What only `dilated` can say; the laws over it are in test_laws_*.py."""

import numpy as np
import pytest

from attention import Dilated, Mask
from tests.attention.masks import positions, visible

SETTINGS = (
    {"window_size": 3, "dilation": 4, "query_block": 4},
    {"window_size": 2, "dilation": 3, "key_block": 4, "softcap": 1.5, "temperature": 0.7, "scale": 0.9},
)


def allowed(variant, mask, batch, query_length, key_length):
    """A multiple of the dilation away, fewer than window_size of them, and what the mask allows."""
    query, key = positions(mask, batch, query_length, key_length)
    distance = query[:, :, None] - key[:, None, :]
    steps, rest = np.divmod(np.abs(distance), variant.dilation)
    return visible(mask, batch, query_length, key_length) & (rest == 0) & (steps < variant.window_size)


CAUSAL_2_OF_3 = """
    1.......
    .1......
    ..1.....
    1..1....
    .1..1...
    ..1..1..
    ...1..1.
    ....1..1
"""


def test_literal_mask():
    seen = allowed(Dilated(window_size=2, dilation=3), Mask(causal=True), 1, 8, 8)[0]
    assert ["".join(".1"[int(x)] for x in row) for row in seen] == CAUSAL_2_OF_3.split()


@pytest.mark.parametrize(
    ("lengths", "causal", "pairs"), [((8, 8), True, 13), ((8, 8), False, 18), ((2, 8), True, 4)]
)
def test_flops_count_what_the_literal_mask_shows(lengths, causal, pairs):
    sizes = {"batch": 2, "num_heads": 3, "num_kv_heads": 3, "head_dim": 4, "value_dim": 5}
    counted = Dilated(window_size=2, dilation=3).flops(
        query_length=lengths[0], key_length=lengths[1], causal=causal, **sizes
    )
    assert counted.forward == 2 * 3 * pairs * 2 * (4 + 5)
