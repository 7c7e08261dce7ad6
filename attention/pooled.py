"""Hierarchical attention: exact keys nearby, pools of keys farther away, pools of pools beyond."""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attention.blocks import band_block
from attention.blockwise import Sides, blockwise
from attention.cache import attend_one, lengths_of, places, put, ring, unless_full
from attention.check import check_block_fields, check_choice, check_count, check_field, check_softmax_fields
from attention.cost import count_pairs, softmax_flops
from attention.dropout import for_tokens
from attention.interface import Capabilities, Flops, Limit, Observation, SoftmaxAttention
from attention.logits import Logits
from attention.mask import Mask
from attention.merge import merge
from attention.operands import blocks
from attention.tiles import LONGEST_SLAB, slab_or_tiles, without_peeling
from attention.visibility import FAR, NOWHERE, Interval, Placed, of_real_queries, visible

MOST_LEVELS = FAR.bit_length() - 1  # pools of two, of pools of two ...: no sequence fills more


@dataclasses.dataclass(frozen=True)
class Pooled(SoftmaxAttention):
    """One softmax over exact keys inside a window and, farther away, over pools of keys and pools of pools.

    Level l has pools of pool_size**l consecutive keys. Going away from the query, at least `window_size`
    keys are exact, then at least about `window_size` pools of level 1 follow, then of level 2, up to the
    last level, which covers the rest; each change of level is at a pool's boundary, so that every key counts
    once. A causal query sees a pool only when its last member is not after the query. A pool's key and value
    are the means of its members', or weighted by softmax(member key . learned vector); with `count_members`
    the logarithm of the number of its (real) members is added to its logit, so that a pool of equal keys
    counts as they would. `num_levels=1, window_size=0` is memory-compressed attention (Liu et al. 2018) with
    pooling for its convolution and, if causal, the keys of the pool that has not closed yet attended exactly.

    O(T ((window_size + pool_size) num_levels + T / pool_size**num_levels)) time, as up to pool_size - 1 more
    are seen at each change of level: quadratic for one level, near linear when levels grow with log T. O(T)
    memory. It is full attention if pool_size == 1 or
    window_size >= max(T, S).
    Pools lie by index: a padded token takes up room in a pool but is no member.
    """

    name: ClassVar[str] = "pooled"

    window_size: int = 128
    pool_size: int = 4
    num_levels: int = 2
    pooling: str = "mean"  # or "learned"
    count_members: bool = True
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # None: chosen from the window's size
    key_block: int | None = None  # None: all that a block of queries sees, if that is short

    def __post_init__(self):
        check_count(self, "window_size", least=0)
        check_count(self, "pool_size")
        check_count(self, "num_levels", most=MOST_LEVELS)
        check_choice(self, "pooling", ("mean", "learned"))
        check_field(self, "count_members", "True or False", isinstance(self.count_members, bool))
        check_softmax_fields(self)
        check_block_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=False, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=self.pooling == "learned",
            time="O(T ((w + P) L + T / P^L))", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit({"pool_size": 1}, "pool_size == 1 or window_size >= max(T, S)")

    def init(self, rng, *, num_heads, num_kv_heads, head_dim, model_dim, max_length):
        """`pool_query` (num_levels K H) for learned pooling: zeros, so that it starts at the mean."""
        if self.pooling == "mean":
            return {}
        width = max(head_dim, 1)  # as operands have it
        return {"pool_query": jnp.zeros((self.num_levels, num_kv_heads, width), jnp.float32)}

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Pairs of queries with keys and pools, and the weighted sums that make the pools."""
        spans = self._spans(query_length, key_length, causal)
        pairs = sum(_num_pairs(span) for span in spans.values())
        counted = softmax_flops(
            pairs, batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim
        )
        members = sum(-(-key_length // self.pool_size**level) for level in range(max(spans, default=0)))
        width = head_dim + value_dim + (head_dim if self.pooling == "learned" else 0)
        pooling = 2 * batch * num_kv_heads * members * width
        return Flops(counted.forward + pooling, counted.backward + 2 * pooling)

    def observe(self, query, key, mask, weights, *, params={}, gates=None):  # noqa: B006
        """`on_pools`: the share of the weight that lies on pools, not on exact keys."""
        spans = self._spans(weights.shape[2], weights.shape[3], mask.causal)
        exact = np.full(weights.shape[2:], self.pool_size == 1)
        if 0 in spans and self.pool_size > 1:
            place = np.arange(weights.shape[3])
            exact = (spans[0].first[:, None] <= place) & (place <= spans[0].last[:, None])
        total = weights.sum((2, 3))
        share = jnp.where(exact, 0, weights).sum((2, 3)) / jnp.where(total > 0, total, 1)
        return {"on_pools": Observation(share, "share of the weight on pools")}

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        spans = self._spans(query.shape[1], key.shape[1], mask.causal)
        pools, pool_queries = _keys_as_pools(key, value, mask), self._pool_queries(params, key.shape[2:])
        parts = []
        for level in range(max(spans, default=0) + 1):
            if level:
                pools = _pool(pools, self.pool_size, pool_queries[level - 1])
            if level in spans:
                level_rng = None if rng is None else jax.random.fold_in(rng, level) if level else rng
                bias = self.count_members and level > 0
                parts.append(self._attend_level(query, pools, spans[level], mask, bias, level_rng))
        return merge(parts)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        length, pools, spans = lengths_of(mask), _keys_as_pools(key, value, mask), self._decoded(max_length)
        pool_queries, rings = self._pool_queries(params, key.shape[2:]), []
        for level, span in enumerate(spans):
            if level:
                pools = _pool(pools, self.pool_size, pool_queries[level - 1])
            closed, dtype = length // self.pool_size**level, pools.key.dtype if level else key.dtype
            rings.append(tuple(ring(x.astype(dtype), closed, span.slots) for x in pools[:2]))
        return _Cache(tuple(rings), length, max_length)

    def _step(self, query, key, value, cache, *, params, gates):
        length, rings, parts = cache.length + 1, [], []
        pool_queries = self._pool_queries(params, key.shape[2:])
        for level, span in enumerate(self._decoded(cache.max_length)):
            size = self.pool_size**level
            closed = length // size
            if level:
                place = (closed - 1)[:, None] * self.pool_size + jnp.arange(self.pool_size)
                slot = (place % rings[-1][0].shape[1])[..., None, None]
                key, value = (jnp.take_along_axis(x, slot, 1) for x in rings[-1])
                members = _keys_as_pools(key, value, Mask())
                key, value, _ = _pool(members, self.pool_size, pool_queries[level - 1])
            closes = length % size == 0
            rings.append(
                tuple(
                    put(old, x, closed - 1, closes)
                    for old, x in zip(cache.rings[level], (key, value), strict=True)
                )
            )
            place, seen = places(closed, span.slots), jnp.minimum(length, cache.max_length)[:, None] - 1
            seen = (place >= 0) & (span.first[seen] <= place) & (place <= span.last[seen])
            key, value = (x.astype(query.dtype) for x in rings[-1])
            output, lse = attend_one(query, key, value, seen[:, None], Logits.of(self, query.shape[3]))
            parts.append((output, lse + math.log(size) if self.count_members else lse))
        output = unless_full(merge(parts)[0], length, cache.max_length, self.reach)
        return output, _Cache(tuple(rings), length, cache.max_length)

    def _decoded(self, max_length: int) -> list["_Held"]:
        """For each level what each token sees of it, and how many pools that takes to remember."""
        spans, held = self._spans(max_length, max_length, True), []
        for level in range(max(spans) + 1):
            closed = (np.arange(max_length) + 1) // self.pool_size**level
            span = spans.get(level, Interval(closed, closed - 1))
            sees = span.first <= span.last
            most = int(np.where(sees, closed - span.first, 0).max())
            slots = max(most, min(self.pool_size, max_length))  # so many make one of the next level
            first, last = (jnp.asarray(x, jnp.int32) for x in (span.first, span.last))
            held.append(_Held(first, last, slots))
        return held

    def _pool_queries(self, params, shape: tuple[int, ...]):
        """What weights the members of the pools of each level (K H each), None for the mean."""
        if self.pooling == "mean":
            return [None] * self.num_levels
        learned = params.get("pool_query")
        if learned is None or learned.shape != (self.num_levels, *shape):
            raise ValueError(
                f"pooled: params['pool_query'] must have shape {(self.num_levels, *shape)} (num_levels, key "
                f"heads, head width), got {None if learned is None else learned.shape}; `init` makes it"
            )
        return learned

    def _spans(self, query_length: int, key_length: int, causal: bool) -> dict[int, Interval]:
        """For each level that is seen at all, the pools that each query sees: NumPy, T each, by index."""
        position = np.arange(query_length, dtype=np.int64) + (key_length - query_length)
        levels = 1  # up to the first that covers all keys by one pool
        while levels < self.num_levels and 1 < self.pool_size**levels < key_length:
            levels += 1
        spans, inner = {}, None
        for level in range(levels + 1):
            outer = self._nearer_than(level + 1, position, key_length, causal, last=level == levels)
            span = _span(inner, outer, self.pool_size**level, causal)
            if _num_pairs(span):
                spans[level] = span
            inner = outer
        return spans

    def _nearer_than(self, level: int, position: np.ndarray, key_length: int, causal: bool, last: bool):
        """Key indices [left, right) seen in levels below `level`, T each: all beyond the last."""
        end = np.clip(position + 1, 0, key_length) if causal else np.full_like(position, key_length)
        if last:
            return np.zeros_like(position), end
        size, half = self.pool_size**level, self.window_size * self.pool_size ** (level - 1)
        if causal:
            return np.maximum((position + 1 - half) // size * size, 0), end
        left = np.maximum((position + (1 - half if half else 0)) // size * size, 0)
        right = -(-(position + (half or 1)) // size) * size
        return left, left if level == 1 and not half else np.maximum(np.minimum(right, key_length), left)

    def _attend_level(self, query, pools: "_Pools", span: Interval, mask: Mask, bias: bool, rng):
        """Output and log-sum-exp of the pools of one level."""
        num_pools = pools.key.shape[1]
        width = int((span.last - span.first + 1).max(initial=1))
        rows = query.shape[0] * query.shape[2]
        query_block = self.query_block or band_block(rows, min(width, LONGEST_SLAB), query.shape[1])
        query_block = min(query_block, query.shape[1])
        key_block = self.key_block and min(self.key_block, num_pools)
        hole = {} if span.hole_first is None else {"hole_first": span.hole_first, "hole_last": span.hole_last}
        tiles = slab_or_tiles(span.first, span.last, query_block, key_block, **hole)
        if mask.given():
            tiles = without_peeling(tiles)
        span = Interval(*(x if x is None else jnp.asarray(x, jnp.int32)[None, None] for x in span))
        first, last = of_real_queries(mask, span.first, span.last)
        span = span._replace(first=first, last=last)
        position = jnp.where(pools.count > 0, jnp.arange(num_pools, dtype=jnp.int32), NOWHERE)[:, None]
        key_bias = jnp.log(jnp.maximum(pools.count, 1))[:, None] if bias else None
        dropout = for_tokens(rng, self.dropout_rate, query.shape, pools.value.shape)
        return blockwise(
            query, pools.key.astype(query.dtype), pools.value.astype(query.dtype),
            tiles=tiles, visible=visible,
            sides=Sides(span, Placed(position), key_bias, dropout), dropout_rate=self.dropout_rate,
            logits=Logits.of(self, query.shape[3]),
        )  # fmt: skip


class _Held(NamedTuple):
    """Of one level: the first and the last pool that each token sees, T, and the slots of its ring."""

    first: Any
    last: Any
    slots: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Cache:
    """What decoding remembers: of each level the last pools that closed; how many tokens there were, B."""

    rings: tuple
    length: Any
    max_length: int = dataclasses.field(metadata={"static": True})


class _Pools(NamedTuple):
    """Pools of one level: key B E K H, value B E K V, and the numbers of their members b E, all float."""

    key: Any
    value: Any
    count: Any


def _keys_as_pools(key, value, mask: Mask) -> _Pools:
    wide = jnp.promote_types(key.dtype, jnp.float32)
    valid = jnp.ones((1, key.shape[1]), bool) if mask.key_valid is None else mask.key_valid
    return _Pools(key.astype(wide), value.astype(wide), valid.astype(wide))


def _pool(pools: _Pools, size: int, pool_query) -> _Pools:
    """Every `size` consecutive pools as one, weighted by members and, with `pool_query` (K H), by content."""
    size = min(size, pools.key.shape[1])  # one that has room for all is filled with nothing else
    members = _Pools(*(blocks(x, size) for x in pools))
    count = members.count.sum(2)
    share = members.count[..., None]  # b E P 1, or with content B E P K
    if pool_query is not None:
        content = jnp.einsum("BEPKH,KH->BEPK", members.key, pool_query.astype(members.key.dtype))
        content = jnp.where(share > 0, content, -jnp.inf)
        greatest = jnp.maximum(
            jax.lax.stop_gradient(content.max(2, keepdims=True)), jnp.finfo(content.dtype).min
        )
        share = share * jnp.exp(content - greatest)
    total = share.sum(2, keepdims=True)
    share = share / jnp.where(total > 0, total, 1)
    key, value = ((share[..., None] * x).sum(2) for x in (members.key, members.value))
    return _Pools(key, value, count)


def _span(inner, outer, size: int, causal: bool) -> Interval:
    """Pools of `size` keys inside the key indices [left, right) of `outer` and outside those of `inner`."""
    first, last = outer[0] // size, -(-outer[1] // size) - 1
    if inner is None:
        return Interval(first, last)
    hole_first, hole_last = inner[0] // size, -(-inner[1] // size) - 1
    return Interval(first, hole_first - 1) if causal else Interval(first, last, hole_first, hole_last)


def _num_pairs(span: Interval) -> int:
    pairs = count_pairs(span.first, span.last)
    return pairs if span.hole_first is None else pairs - count_pairs(span.hole_first, span.hole_last)
