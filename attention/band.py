"""From a mask and a band of positions to a blockwise call: what variants with exact keys share."""

from jaxtyping import Array, Float

from attention.blockwise import Sides, blockwise
from attention.dropout import Dropout
from attention.logits import Logits
from attention.mask import Mask
from attention.tiles import refine, slab_or_tiles, tiles_between
from attention.visibility import default_band, from_mask, visible


def band_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K V"],
    mask: Mask,
    *,
    before: int | None,
    after: int | None,
    query_block: int,
    key_block: int | None,
    logits: Logits,
    dropout_rate: float,
    dropout: Dropout | None,
) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
    """Exact softmax over the keys `before` positions back to `after` ahead (None: all) that `mask` allows.

    Output in the query's dtype, log-sum-exp in float32 or wider. A block of queries visits tiles of
    `key_block` keys, or, if that is None, positions are the defaults and the band is short, one tile that
    holds all that it sees.
    Positions that are given cost what the defaults do where they ascend, by themselves or in ascending
    segments; else up to all tiles are visited.
    """
    query_length, key_length = query.shape[1], key.shape[1]
    # What is longer than the input would only be filled with padding.
    query_block, key_block = min(query_block, query_length), key_block and min(key_block, key_length)
    query_side, key_side = from_mask(mask, query_length, key_length, before, after)
    if mask.query_positions is not None:
        key_block = key_block or 2 * query_block
        tiles = tiles_between(query_side, key_side, query_length, query_block, key_block)
    else:
        tiles = slab_or_tiles(*default_band(query_length, key_length, before, after), query_block, key_block)
        tiles = refine(tiles, query_side, key_side) if mask.given() else tiles
    sides = Sides(query_side, key_side, dropout=dropout)
    return blockwise(
        query, key, value, tiles=tiles, visible=visible, sides=sides, logits=logits,
        dropout_rate=dropout_rate, dtype=query.dtype,
    )  # fmt: skip
