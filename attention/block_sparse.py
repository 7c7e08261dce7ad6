"""Exact attention to chosen blocks of keys: near, global, strided and random ones."""

import dataclasses
import functools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attention.band import band_attention
from attention.blocks import full_blocks
from attention.blockwise import Sides, blockwise
from attention.cache import attend_placed, last_tokens, with_token
from attention.check import check_count, check_softmax_fields
from attention.cost import softmax_flops
from attention.dropout import Dropout, for_tokens
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits
from attention.mask import Mask
from attention.tiles import Tiles, refine
from attention.visibility import FAR, from_mask, visible


@dataclasses.dataclass(frozen=True)
class BlockSparse(SoftmaxAttention):
    """Each block of queries attends to some blocks of keys, exactly: one softmax over all of them.

    Positions lie in blocks of `block_size`. Block i of queries sees block j of keys if any of these holds:

    - local: |i - j| <= local_blocks;
    - global: j < global_blocks, or i < global_blocks;
    - strided: (i - j) is a multiple of `stride` (0: none is);
    - random: j is one of `random_blocks` blocks before i that i draws, or i one of those that j draws.

    BigBird is local, global and random (Zaheer et al. 2020, section 2), Longformer local and global (Beltagy
    et al. 2020), the strided Sparse Transformer local and strided (Child et al. 2019, section 4.2, by blocks
    and with one head for both, which they also split among heads). Departure from BigBird: what a block
    draws depends on `pattern_seed` and its number alone, never on the length, which padding would change; so
    it draws from the blocks before it and is seen by them in turn.

    O(T W) time for each block that is seen, W = block_size; strides see T / (W stride) of them. O(T) memory.
    It is full attention if local_blocks >= max(T, S) / block_size.
    """

    name: ClassVar[str] = "block_sparse"

    block_size: int = 64
    local_blocks: int = 1
    global_blocks: int = 1
    random_blocks: int = 2
    stride: int = 0
    pattern_seed: int = 0
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0

    def __post_init__(self):
        check_count(self, "block_size")
        for field in ("local_blocks", "global_blocks", "random_blocks", "stride"):
            check_count(self, field, least=0)
        check_count(self, "pattern_seed", least=0, most=2**31 - 1)
        check_softmax_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        strided = " + T / s" if self.stride else ""
        return Capabilities(
            causal=True, two_sided=True, interior_padding=False, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=True, equivariant=False, learned=False,
            time=f"O(T ((l + g + r) W{strided}))", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        if self.global_blocks or self.random_blocks or self.stride:
            return math.inf
        return (self.local_blocks + 1) * self.block_size - 1

    def limit(self, length: int) -> Limit:
        condition = "local_blocks >= max(T, S) / block_size"
        return Limit({"local_blocks": -(-max(length, 1) // self.block_size)}, condition)

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        size, first, pairs = self._size(query_length, key_length), key_length - query_length, 0
        num_blocks = -(-key_length // size)
        for i in range(first // size, num_blocks):
            begin, end = max(i * size, first), min((i + 1) * size, key_length)
            seen = np.array(self._seen(i, num_blocks, causal), np.int64)
            keys = np.minimum((seen + 1) * size, key_length) - seen * size
            pairs += (end - begin) * int(keys[(seen != i) | (not causal)].sum())
            if causal and i >= 0:  # of its own block each sees what is up to itself
                pairs += (begin + 1 + end) * (end - begin) // 2 - i * size * (end - begin)
        return softmax_flops(pairs, batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim)

    def _size(self, query_length: int, key_length: int) -> int:
        """One block that holds all is as good as a longer one."""
        return min(self.block_size, max(query_length, key_length))

    def _seen(self, i: int, num_blocks: int, causal: bool) -> list[int]:
        """Blocks of keys that block i of queries (below 0 where T > S) sees, ascending."""
        end = max(min(i + 1, num_blocks) if causal else num_blocks, 0)
        seen = set(range(max(i - self.local_blocks, 0), min(i + self.local_blocks + 1, end)))
        seen.update(range(end if i < self.global_blocks else min(self.global_blocks, end)))
        if self.stride:
            seen.update(range(i % self.stride, end, self.stride))
        if i >= 0:
            seen.update(
                j for j in drawn_blocks(self.random_blocks, self.pattern_seed, num_blocks)[i] if j < end
            )
        return sorted(seen)

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        dropout = for_tokens(rng, self.dropout_rate, query.shape, value.shape)
        query_length, key_length = query.shape[1], key.shape[1]
        ahead = query_length - key_length
        looking_everywhere = 0  # queries that see all keys, in both directions: they would widen every row
        if not mask.causal:
            end = self.global_blocks * self._size(query_length, key_length) + ahead
            looking_everywhere = min(max(end, 0), query_length)
        if not looking_everywhere:
            return self._attend_blocks(query, key, value, mask, dropout)
        first, rest = (
            (query[:, part], _queries(mask, part), _draws(dropout, part))
            for part in (slice(0, looking_everywhere), slice(looking_everywhere, None))
        )
        parts = [self._attend_all(first[0], key, value, *first[1:])]
        if looking_everywhere < query_length:
            parts.append(self._attend_blocks(rest[0], key, value, *rest[1:]))
        return jax.tree.map(lambda *x: jnp.concatenate(x, 1), *parts)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return last_tokens(key, value, mask, max_length)

    def _step(self, query, key, value, cache, *, params, gates):
        cache = with_token(cache, key, value)
        size, num_blocks = self.block_size, -(-cache.key.shape[1] // self.block_size)
        seen = [self._seen(i, num_blocks, True) for i in range(num_blocks)]
        table = np.full((num_blocks, max(map(len, seen))), -1)
        for blocks, row in zip(seen, table, strict=True):
            row[: len(blocks)] = blocks
        block = jnp.asarray(table, jnp.int32)[(cache.length - 1) // size]
        place = block[..., None] * size + jnp.arange(size)
        place = place.reshape(len(place), -1)
        return attend_placed(query, cache, place, Logits.of(self, query.shape[3]), reach=self.reach), cache

    def _attend_all(self, query, key, value, mask: Mask, dropout):
        blocks = full_blocks(query.shape[0] * query.shape[2], query.shape[1], key.shape[1])
        return band_attention(
            query, key, value, mask, before=None, after=None, query_block=blocks[0], key_block=blocks[1],
            logits=Logits.of(self, query.shape[3]), dropout_rate=self.dropout_rate, dropout=dropout,
        )  # fmt: skip

    def _attend_blocks(self, query, key, value, mask: Mask, dropout):
        """The last query stands at the last key; in front queries are filled up to whole blocks."""
        query_length, key_length = query.shape[1], key.shape[1]
        size = self._size(query_length, key_length)
        filled = (key_length - query_length) % size
        tiles = self._tiles(query_length + filled, key_length, size, mask.causal, not mask.given())
        query_side, key_side = from_mask(mask, query_length, key_length, None, 0 if mask.causal else None)
        query_side = query_side._replace(
            first=_in_front(query_side.first, filled, FAR), last=_in_front(query_side.last, filled, -FAR)
        )
        tiles = refine(tiles, query_side, key_side) if mask.given() else tiles
        if dropout is not None:
            words = tuple(_in_front(word, filled, 0) for word in dropout.words)
            dropout = dropout._replace(words=words)
        output, lse = blockwise(
            jnp.pad(query, ((0, 0), (filled, 0), (0, 0), (0, 0))), key, value, tiles=tiles, visible=visible,
            sides=Sides(query_side, key_side, dropout=dropout), logits=Logits.of(self, query.shape[3]),
            dropout_rate=self.dropout_rate, dtype=query.dtype,
        )  # fmt: skip
        return output[:, filled:], lse[:, filled:]

    def _tiles(self, query_length: int, key_length: int, size: int, causal: bool, peel: bool) -> Tiles:
        """A tile for each pair of blocks that is seen; `peel`: those seen whole need no mask."""
        num_blocks, before = -(-key_length // size), (key_length - query_length) // size
        rows = []
        for c in range(-(-query_length // size)):
            seen = np.array(self._seen(before + c, num_blocks, causal), np.int32)
            whole = (seen + 1) * size <= key_length
            whole &= (seen < before + c) if causal else True
            order = np.argsort(~whole, kind="stable")
            rows.append((seen[order], int(whole.sum()) if peel else 0))
        starts = np.zeros((len(rows), max(1, *(len(seen) for seen, _ in rows))), np.int32)
        for c, (seen, _) in enumerate(rows):
            starts[c, : len(seen)] = seen * size
        num_tiles = np.array([len(seen) for seen, _ in rows], np.int32)
        num_unmasked = np.array([number for _, number in rows], np.int32)
        return Tiles(
            starts, num_unmasked, num_tiles, size, size, num_blocks * size,
            some_unmasked=bool(num_unmasked.any()), some_masked=bool((num_tiles > num_unmasked).any()),
        )  # fmt: skip


@functools.cache
def drawn_blocks(number: int, seed: int, num_blocks: int) -> list[set[int]]:
    """For each block those that it draws, `number` of the ones before it, and those that draw it."""
    near: list[set[int]] = [set() for _ in range(num_blocks)]
    for i in range(num_blocks):
        drawn = np.random.default_rng((seed, i)).choice(i, min(number, i), replace=False)
        for j in drawn.tolist():
            near[i].add(j)
            near[j].add(i)
    return near


def _in_front(x, number: int, value: int):
    """The last axis begun with as many values."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(number, 0)], constant_values=value)


def _queries(mask: Mask, part: slice) -> Mask:
    """The mask of some of the queries; which keys they see is not decided by where they stand."""
    valid = mask.query_valid
    return mask if valid is None else dataclasses.replace(mask, query_valid=valid[:, part])


def _draws(dropout: Dropout | None, part: slice) -> Dropout | None:
    if dropout is None:
        return None
    first, second = (word[..., part] for word in dropout.words)
    return dropout._replace(words=(first, second))
