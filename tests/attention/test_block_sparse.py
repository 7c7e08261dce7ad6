"""What only `block_sparse` can say; the laws over it are in test_laws_*.py."""

import numpy as np
import pytest

from attention import BlockSparse, Mask
from tests.attention.masks import positions, visible

SETTINGS = (
    {"block_size": 4, "local_blocks": 1, "global_blocks": 2, "random_blocks": 1, "stride": 4},
    {"block_size": 3, "local_blocks": 1, "global_blocks": 0, "random_blocks": 0, "softcap": 1.5,
     "temperature": 0.7, "scale": 0.9},
    {"block_size": 2, "local_blocks": 0, "global_blocks": 0, "random_blocks": 3, "pattern_seed": 5},
)  # fmt: skip


def allowed(variant, mask, batch, query_length, key_length):
    """Pair by pair of blocks, and what the mask allows."""
    query, key = (
        np.floor_divide(x[0], variant.block_size) for x in positions(mask, batch, query_length, key_length)
    )
    near = np.zeros((query_length, key_length), bool)
    for t, s in np.ndindex(near.shape):
        near[t, s] = linked(variant, int(query[t]), int(key[s]))
    return visible(mask, batch, query_length, key_length) & near


def linked(variant, i, j):
    return (
        abs(i - j) <= variant.local_blocks
        or min(i, j) < variant.global_blocks
        or (variant.stride > 0 and (i - j) % variant.stride == 0)
        or min(i, j) in draws(variant, max(i, j))
    )


def draws(variant, i):
    """What block i draws of the blocks before it."""
    if i <= 0:
        return []
    draw = np.random.default_rng((variant.pattern_seed, i))
    return draw.choice(i, min(variant.random_blocks, i), replace=False)


BIGBIRD = """
    1.....
    11....
    111...
    1.11..
    1..11.
    1.r.11
"""
STRIDED = """
    1.....
    11....
    .11...
    1.11..
    .1.11.
    ..1.11
"""


@pytest.mark.parametrize(
    ("fields", "drawing"),
    [
        ({"random_blocks": 0}, BIGBIRD.replace("r", ".")),
        ({"global_blocks": 0, "random_blocks": 0, "stride": 3}, STRIDED),
    ],
)
def test_literal_masks(fields, drawing):
    """Six blocks of one token."""
    seen = allowed(BlockSparse(block_size=1, **fields), Mask(causal=True), 1, 6, 6)[0]
    assert ["".join(".1"[int(x)] for x in row) for row in seen] == drawing.split()


@pytest.mark.parametrize("causal", [True, False])
def test_every_block_draws_as_many_as_there_are(causal):
    variant = BlockSparse(block_size=1, local_blocks=0, global_blocks=0, random_blocks=3)
    seen = allowed(variant, Mask(causal=causal), 1, 40, 40)[0] & ~np.eye(40, dtype=bool)
    assert (np.tril(seen).sum(1) == np.minimum(np.arange(40), 3)).all()
    assert causal or (seen == seen.T).all()


@pytest.mark.parametrize("fields", SETTINGS, ids=str)
@pytest.mark.parametrize("lengths", [(37, 37), (11, 37), (37, 11)])
@pytest.mark.parametrize("causal", [True, False])
def test_flops_count_what_is_seen(fields, lengths, causal):
    variant = BlockSparse(**fields)
    sizes = {"batch": 2, "num_heads": 3, "num_kv_heads": 3, "head_dim": 4, "value_dim": 5}
    counted = variant.flops(query_length=lengths[0], key_length=lengths[1], causal=causal, **sizes)
    assert counted.forward == 2 * 3 * allowed(variant, Mask(causal), 1, *lengths).sum() * 2 * (4 + 5)
