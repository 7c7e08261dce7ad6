"""Softmax attention of each query over blocks of keys that were chosen for it, in tiles of one such block.

Queries are sorted by the blocks that they chose, each block's filled up to whole tiles, so that a tile is one
product of many queries with one block of keys; what its several blocks give a query is merged.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from attention.blocks import band_block
from attention.blockwise import Sides, blockwise
from attention.dropout import Dropout
from attention.logits import Logits
from attention.mask import Mask
from attention.merge import merge_stacked
from attention.tiles import Tiles
from attention.visibility import FAR, Interval, Placed, from_mask, visible


def routed_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K V"],
    chosen: Int[Array, "B L T M"],
    mask: Mask,
    *,
    block_size: int,
    query_block: int | None,
    logits: Logits,
    dropout_rate: float,
    dropout: Dropout | None,
) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
    """Exact softmax over the keys of the `chosen` blocks that `mask` allows, which may have no positions.

    Each of L choosers stands for N / L heads; K divides L. The M choices of a query are different blocks of
    `block_size` keys; the number of blocks stands for none. O(T M block_size) time and O(T M) memory. Both
    outputs are float32 or wider.
    """
    batch, length, num_heads, _ = query.shape
    on_average = chosen.shape[2] * chosen.shape[3] // -(-key.shape[1] // block_size)  # who choose a block
    size = query_block or min(band_block(batch * num_heads, block_size, length), max(on_average, 1))
    interval, placed = from_mask(mask, length, key.shape[1], None, 0 if mask.causal else None)

    def by_chooser(x):
        """B T N ... -> B K L/K T N/L ...: heads as their keys and their choosers have them."""
        shape = (batch, length, key.shape[2], chosen.shape[1] // key.shape[2], -1, *x.shape[3:])
        return jnp.moveaxis(x.reshape(shape), 1, 3)

    def of_batch(x):
        return jnp.broadcast_to(x[:, 0], (batch, x.shape[2]))

    chooser = _Chooser(
        by_chooser(query),
        by_chooser(chosen.swapaxes(1, 2))[..., 0, :],
        None if dropout is None else tuple(by_chooser(_by_head(x)) for x in dropout.words),
    )
    keys = _Keys(*(jnp.moveaxis(_filled(x, block_size), 2, 1) for x in (key, value)))
    places = _Places(of_batch(interval.first), of_batch(interval.last), of_batch(placed.position))
    attend = functools.partial(
        _attend, block_size, min(size, length), logits, dropout_rate, None if dropout is None else
        dropout.key_index[0, 0],
    )  # fmt: skip
    for axes in ((0, None, None), (0, 0, None), (0, 0, 0)):  # choosers of a key head, key heads, the batch
        attend = jax.vmap(attend, axes)
    output, lse = attend(chooser, keys, places)
    output, lse = (jnp.moveaxis(x, 3, 1) for x in (output, lse))
    return output.reshape(*query.shape[:3], -1), lse.reshape(query.shape[:3])


def blocks_of_queries(
    choose: Callable[[Any, Any, Any], Any],
    query: Float[Array, "B T N H"],
    valid: Bool[Array, "b T"] | None,
    first: int,
    size: int,
) -> Int[Array, "B L T M"]:
    """choose(query B W N H, valid b W, positions W) -> B L W M for `size` queries at a time, joined.

    The first query stands at `first`.
    """
    length = query.shape[1]
    size = min(size, length)
    fill = -length % size
    valid = jnp.ones((1, length), bool) if valid is None else valid
    parts = (
        jnp.pad(query, ((0, 0), (0, fill), (0, 0), (0, 0))).reshape(len(query), -1, size, *query.shape[2:]),
        jnp.pad(valid, ((0, 0), (0, fill))).reshape(len(valid), -1, size),
    )
    position = first + jnp.arange(length + fill, dtype=jnp.int32).reshape(-1, size)
    parts = (*(jnp.moveaxis(x, 1, 0) for x in parts), position)
    chosen = jnp.moveaxis(lax.map(lambda part: choose(*part), parts), 0, 2)
    return chosen.reshape(*chosen.shape[:2], -1, chosen.shape[4])[:, :, :length]


class _Chooser(NamedTuple):
    """What is a chooser's own: query T G H, the chosen blocks T M, words for dropout T G each or None."""

    query: Any
    chosen: Any
    words: Any


class _Keys(NamedTuple):
    """S H and S V, filled up to whole blocks."""

    key: Any
    value: Any


class _Places(NamedTuple):
    """First and last position that a query sees (T each), and the keys' positions (S)."""

    first: Any
    last: Any
    position: Any


class _Plan(NamedTuple):
    """How M T choices are dealt out to C tiles of W slots each.

    `block` (C) is that of each tile; `choice` (C W) which one is in a slot, M T if it is empty; `slot` (M T)
    is where a choice went, C W if it is none.
    """

    block: Any
    choice: Any
    slot: Any


def _attend(
    block_size, size, logits, dropout_rate, key_index, chooser: _Chooser, keys: _Keys, places: _Places
):
    """Output T G V and log-sum-exp T G of one chooser."""
    length, most = chooser.chosen.shape
    key_length = keys.key.shape[0]
    plan = _plan(chooser.chosen, key_length // block_size, size)
    once = np.ones(plan.block.size, np.int32)
    tiles = Tiles(
        plan.block[:, None] * block_size, 0 * once, once, size, block_size, key_length,
        some_unmasked=False, some_masked=True,
    )  # fmt: skip

    token = jnp.where(plan.choice < plan.slot.size, plan.choice % length, length)

    def in_slots(x, fill: int):
        return jnp.take(x, token, axis=0, mode="fill", fill_value=fill)

    interval = Interval(*(x[None, None] for x in (in_slots(places.first, FAR), in_slots(places.last, -FAR))))
    dropout = None
    if chooser.words is not None:
        first, second = (in_slots(x, 0).T[None, None] for x in chooser.words)
        dropout = Dropout((first, second), key_index[None, None])
    queries: Any = _moved(most, chooser.query, token, plan.slot)
    output, lse = blockwise(
        queries[None],
        keys.key[None, :, None], keys.value[None, :, None], tiles=tiles, visible=visible,
        sides=Sides(interval, Placed(places.position[None, None]), dropout=dropout),
        dropout_rate=dropout_rate, logits=logits,
    )  # fmt: skip
    parts: Any = (_moved(1, x[0], plan.slot, plan.choice) for x in (output, lse))
    output, lse = (x.reshape(most, length, *x.shape[1:]) for x in parts)
    none = (plan.slot == plan.choice.size).reshape(most, length)
    return merge_stacked(output, jnp.where(none[:, :, None], -jnp.inf, lse))


def _plan(chosen: Int[Array, "T M"], num_blocks: int, size: int) -> _Plan:
    """Choices sorted by block, those of each block from the first slot of a tile on."""
    num_choices, chosen = chosen.size, chosen.T.reshape(-1)
    num_tiles = (num_choices + num_blocks * (size - 1)) // size  # the most that can be needed
    order = jnp.argsort(chosen, stable=True).astype(jnp.int32)
    blocks = chosen[order]
    begins = jnp.searchsorted(blocks, jnp.arange(num_blocks + 1, dtype=blocks.dtype)).astype(jnp.int32)
    tiles = -(-jnp.diff(begins) // size)  # of each block
    ends = jnp.cumsum(tiles, dtype=jnp.int32)
    first = jnp.append(ends - tiles, num_tiles)
    slot = first[blocks] * size + jnp.arange(num_choices, dtype=jnp.int32) - begins[blocks]
    slot = jnp.where(blocks < num_blocks, slot, num_tiles * size)
    slot = jnp.zeros_like(slot).at[order].set(slot, unique_indices=True)
    tile = jnp.arange(num_tiles, dtype=jnp.int32)
    block = jnp.searchsorted(ends, tile, side="right").astype(jnp.int32)  # num_blocks: the tile is not needed
    rank = ((tile - first[block]) * size)[:, None] + jnp.arange(size, dtype=jnp.int32)
    place = begins[block][:, None] + rank
    filled = (block < num_blocks)[:, None] & (place < jnp.append(begins[1:], 0)[block][:, None])
    choice = jnp.where(filled, order[jnp.minimum(place, num_choices - 1)], num_choices)
    return _Plan(jnp.minimum(block, num_blocks - 1), choice.reshape(-1), slot)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _moved(
    copies: int, array: Float[Array, "I ..."], index: Int[Array, " J"], inverse
) -> Float[Array, "J ..."]:
    """array[index], zero beyond the last row; its gradient is a gather too.

    `inverse` (copies I) is where each row is found, J if nowhere: at most `copies` times.
    """
    return _taken(array, index)


def _taken(array, index):
    return jnp.take(array, index, axis=0, mode="fill", fill_value=0)


def _moved_forward(copies, array, index, inverse):
    return _taken(array, index), inverse


def _moved_backward(copies, inverse, cotangent):
    back = _taken(cotangent, inverse)
    if copies > 1:
        wide = jnp.promote_types(back.dtype, jnp.float32)
        back = back.reshape(copies, -1, *back.shape[1:]).sum(0, dtype=wide).astype(back.dtype)
    return back, None, None


_moved.defvjp(_moved_forward, _moved_backward)


def _by_head(words):
    """B K G T -> B T N."""
    return jnp.moveaxis(words.reshape(words.shape[0], -1, words.shape[3]), 2, 1)


def _filled(x, block_size: int):
    """B S ... with zeros up to whole blocks."""
    return jnp.pad(x, ((0, 0), (0, -x.shape[1] % block_size), (0, 0), (0, 0)))
