"""Which tiles of the score matrix each block of queries has to visit, and which of those need no mask."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from attention.visibility import FAR, NOWHERE, Interval, Placed

UNMASKED, MASKED, EMPTY = 0, 1, 2
LONGEST_SLAB = 768


@dataclasses.dataclass(frozen=True)
class Tiles:
    """For each of C blocks of queries, the starts of the tiles (`key_block` consecutive keys) to visit.

    In row c of `starts` (C M) the first `num_unmasked[c]` tiles need no mask, those from there to
    `num_tiles[c]` do, and the rest are empty. `key_length` is what keys must be padded to.
    """

    starts: Any
    num_unmasked: Any
    num_tiles: Any
    query_block: int
    key_block: int
    key_length: int
    some_unmasked: bool
    some_masked: bool
    slabs: bool = False  # tiles begin anywhere, not at multiples of `key_block`
    consecutive: bool = False  # `starts` (C 1) has the first tile of each block, the others follow on it

    @property
    def loops(self) -> bool:
        """Whether blocks differ in their number of tiles. If not each has one, masked if any block's is."""
        if isinstance(self.num_tiles, np.ndarray):
            return bool((self.num_tiles != 1).any())
        return self.consecutive or self.starts.shape[1] > 1

    @property
    def slides(self) -> bool:
        """Whether each block has one slab, and none begins before the last one or leaves a gap after it."""
        if not self.slabs or self.loops:
            return False
        ahead = np.diff(self.starts[:, 0])
        return bool(((ahead >= 0) & (ahead <= self.key_block)).all())


def static_tiles(
    first: np.ndarray,
    last: np.ndarray,
    query_block: int,
    key_block: int | None,
    *,
    hole_first: np.ndarray | None = None,
    hole_last: np.ndarray | None = None,
) -> Tiles:
    """Tiles for intervals of key indices (T each) known while tracing.

    Tiles lie at multiples of `key_block`. None: each block of queries has a slab, one tile that begins at
    the first key that it sees and is as long as the longest stretch that any block sees.
    """
    first, last = (_blocks(x, query_block) for x in (first, last))
    sees, slabs = first <= last, key_block is None
    low = np.where(sees, first, NOWHERE).min(axis=1)
    high = np.where(sees, last, -1).max(axis=1)
    low = np.where(high < 0, 0, low)
    if key_block is None:
        key_block = max(1, int((high - low + 1).max(initial=0)))
    else:
        low = low // key_block * key_block
    most = max(1, int(np.ceil((high - low + 1) / key_block).max(initial=0)))
    starts = low[:, None] + np.arange(most) * key_block
    ends = starts + key_block - 1
    kind = np.where((starts >= first.max(1)[:, None]) & (ends <= last.min(1)[:, None]), UNMASKED, MASKED)
    kind = np.where(starts > high[:, None], EMPTY, kind)
    if hole_first is not None and hole_last is not None:
        hole_first, hole_last = (_blocks(x, query_block) for x in (hole_first, hole_last))
        apart = (ends < hole_first.min(1)[:, None]) | (starts > hole_last.max(1)[:, None])
        inside = (starts >= hole_first.max(1)[:, None]) & (ends <= hole_last.min(1)[:, None])
        kind = np.where((kind == UNMASKED) & ~apart, MASKED, kind)
        kind = np.where(inside, EMPTY, kind)
    order = np.argsort(kind, axis=1, kind="stable")
    starts = np.where(kind == EMPTY, 0, starts)
    visited = starts.max(initial=0) + key_block
    return Tiles(
        np.take_along_axis(starts, order, 1).astype(np.int32),
        (kind == UNMASKED).sum(1).astype(np.int32),
        (kind != EMPTY).sum(1).astype(np.int32),
        query_block,
        key_block,
        int(visited),
        some_unmasked=bool((kind == UNMASKED).any()),
        some_masked=bool((kind == MASKED).any()),
        slabs=slabs,
    )


def slab_or_tiles(
    first: np.ndarray, last: np.ndarray, query_block: int, key_block: int | None, **hole
) -> Tiles:
    """Tiles of `key_block` keys; None: slabs if short, else tiles twice as long as blocks of queries."""
    if key_block is None:
        slabs = static_tiles(first, last, query_block, None, **hole)
        if slabs.key_block <= LONGEST_SLAB:
            return slabs
    return static_tiles(first, last, query_block, key_block or 2 * query_block, **hole)


def tiles_between(query: Interval, key: Placed, query_length: int, query_block: int, key_block: int) -> Tiles:
    """For each block of queries all tiles from the first that it may see to the last, masked; known when run.

    Found from the extremes of tiles and of all before or after them: O(T log S), and as few tiles as there
    can be where positions, or segments, ascend. In no order, there may be many in between that are empty.
    """
    padded_query = -(-query_length // query_block) * query_block
    padded_key = -(-key.position.shape[-1] // key_block) * key_block
    position = _pad(key.position, padded_key, NOWHERE)
    low, _ = _extremes(position, key_block, padded_key)
    _, high = _extremes(jnp.where(position == NOWHERE, -FAR, position), key_block, padded_key)
    bounds = [(low, high, query.first, query.last)]
    if query.segment is not None:
        segment = _pad(key.segment, padded_key, "edge")
        bounds.append((*_extremes(segment, key_block, padded_key), query.segment, query.segment))
    begin, end = jnp.int32(0), jnp.int32(padded_key // key_block)
    for low, high, first, last in bounds:
        least, _ = _extremes(first, query_block, padded_query)
        _, greatest = _extremes(last, query_block, padded_query)
        begin = jnp.maximum(begin, _count(lax.cummax(high, axis=high.ndim - 1), least, "left"))
        ahead = lax.cummin(low, axis=low.ndim - 1, reverse=True)
        end = jnp.minimum(end, _count(ahead, greatest, "right"))
    begin, end = (jnp.broadcast_to(x, (*x.shape[:-1], padded_query // query_block)) for x in (begin, end))
    begin, end = begin.reshape(-1, begin.shape[-1]).min(0), end.reshape(-1, end.shape[-1]).max(0)
    return Tiles(
        (begin * key_block)[:, None], jnp.zeros_like(begin), jnp.maximum(end - begin, 0),
        query_block, key_block, padded_key, some_unmasked=False, some_masked=True, consecutive=True,
    )  # fmt: skip


def without_peeling(tiles: Tiles) -> Tiles:
    """The same tiles, all of them masked: for masks that are known only when run."""
    zero = np.zeros_like(tiles.num_unmasked)
    return dataclasses.replace(tiles, num_unmasked=zero, some_unmasked=False, some_masked=True)


def refine(tiles: Tiles, query: Interval, key: Placed) -> Tiles:
    """Sort tiles by what the arrays say when run: unmasked first, then masked; empty ones dropped.

    A tile is dropped if it is empty in every row of the batch, and unmasked if it is so in every row. What
    is judged are the extremes of each block, so an empty or full tile may be taken for a masked one. Slabs
    are not judged but taken for masked.
    """
    if tiles.slabs:
        return without_peeling(tiles)
    query_length = tiles.starts.shape[0] * tiles.query_block
    low_first, high_first = _extremes(query.first, tiles.query_block, query_length)
    low_last, high_last = _extremes(query.last, tiles.query_block, query_length)
    position = _pad(key.position, tiles.key_length, NOWHERE)
    low, high = _extremes(position, tiles.key_block, tiles.key_length)
    high_seen = _extremes(jnp.where(position == NOWHERE, -FAR, position), tiles.key_block, tiles.key_length)[
        1
    ]
    columns = tiles.starts // tiles.key_block
    low, high, high_seen = (x[..., columns] for x in (low, high, high_seen))
    some = (low <= high_last[..., None]) & (high_seen >= low_first[..., None])
    every = (low >= high_first[..., None]) & (high <= low_last[..., None])
    if query.segment is not None:
        low_query, high_query = _extremes(query.segment, tiles.query_block, query_length)
        low_query, high_query = low_query[..., None], high_query[..., None]
        segment = _pad(key.segment, tiles.key_length, "edge")
        low, high = (x[..., columns] for x in _extremes(segment, tiles.key_block, tiles.key_length))
        some &= (low <= high_query) & (low_query <= high)
        every &= (low == high) & (low_query == high_query) & (low == low_query)
    some, every = (x.reshape(-1, *columns.shape) for x in (some, every))
    kind = jnp.where(every.all(0), UNMASKED, jnp.where(some.any(0), MASKED, EMPTY))
    kind = jnp.where(np.arange(columns.shape[1]) < np.asarray(tiles.num_tiles)[:, None], kind, EMPTY)
    order = jnp.argsort(kind, axis=1, stable=True)
    return dataclasses.replace(
        tiles,
        starts=jnp.take_along_axis(jnp.asarray(tiles.starts), order, 1),
        num_unmasked=(kind == UNMASKED).sum(1, dtype=jnp.int32),
        num_tiles=(kind != EMPTY).sum(1, dtype=jnp.int32),
        some_unmasked=True,
        some_masked=True,
    )


def _blocks(x: np.ndarray, block: int) -> np.ndarray:
    """T -> C W, the last value repeated to fill the last block."""
    return np.pad(x, (0, -len(x) % block), mode="edge").reshape(-1, block)


def _count(ascending, bound, side: str):
    """How many of ... M are below each of ... C ("left"), or not above it ("right"): ... C, int32."""
    shape = jnp.broadcast_shapes(ascending.shape[:-1], bound.shape[:-1])
    ascending, bound = (jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (ascending, bound))
    search = jnp.vectorize(lambda a, v: jnp.searchsorted(a, v, side=side), signature="(m),(c)->(c)")
    return search(ascending, bound).astype(jnp.int32)


def _pad(x, length: int, value):
    """The last axis filled, or cut, to `length`: the last keys may be seen by nobody."""
    x = x[..., :length]
    width = [(0, 0)] * (x.ndim - 1) + [(0, length - x.shape[-1])]
    return jnp.pad(x, width, mode="edge") if value == "edge" else jnp.pad(x, width, constant_values=value)


def _extremes(x, block: int, length: int):
    """Least and greatest of each block, the last value repeated up to `length`: ... T -> two of ... C."""
    blocks = _pad(x, length, "edge")[..., :length].reshape(*x.shape[:-1], -1, block)
    return blocks.min(-1), blocks.max(-1)
