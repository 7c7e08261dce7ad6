"""Attention among tokens that hash alike."""

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attention.blocks import band_block
from attention.blockwise import Sides, blockwise
from attention.buckets import Order, in_order, lsh_buckets, restored, sort_by_bucket
from attention.cache import Tokens, attend_one, last_tokens, places, put, ring, unless_full, with_token
from attention.check import check_count, check_field, check_softmax_fields, is_int
from attention.cost import softmax_flops
from attention.dropout import Dropout, kept, query_words
from attention.interface import Capabilities, Flops, Limit, Observation, SoftmaxAttention
from attention.logits import Logits
from attention.mask import Mask
from attention.merge import merge
from attention.operands import repeated, unit
from attention.tiles import static_tiles, without_peeling
from attention.visibility import NOWHERE

MOST_BUCKETS = 2**20  # of a head and a round, 2 GB of scores for those tokens
MOST_HASHES = 256  # rounds are written out in the program


@dataclasses.dataclass(frozen=True)
class LSH(SoftmaxAttention):
    """Every query attends to the tokens that share a bucket with it, of near rank, in any of several hashes.

    Queries and keys are one projection, the keys normalised: logits = scale q_t.q_s/|q_s|. Round r hashes
    with a random matrix G_r: bucket = argmax [x, -x], x = q_s/|q_s| G_r (Andoni et al. 2015; Reformer,
    Kitaev et al. 2020). In a bucket tokens are ranked by position and cut into chunks of `chunk_size`; a
    query sees its own chunk and the one before, itself excluded. One softmax over the union of all rounds; a
    query that sees nobody there sees itself.

    Departures from the paper, each mending a fault of it or of its code: chunks are of ranks inside a bucket
    and not of the sorted sequence, whose boundaries later tokens move; a token found in several rounds
    counts once by being left out of all but the first, exactly the paper's -log N; the first chunk looks
    back to nothing; rounds do not see each other; positions are compared as integers.

    Padding as a query (`query_valid`) and as a key (`key_valid`) is honoured separately; a token counts in
    ranks if it is either. Segments describe tokens: one whose two labels differ is in none.

    With R = num_hashes O(R T chunk_size) time for attention, O(R T num_buckets) for hashing and, as rounds
    look up whom earlier ones have seen, O(R^2 T chunk_size) comparisons; O(R^2 T) memory.
    A query sees at most 2 chunk_size tokens a round, whatever the length: T / chunk_size buckets are about
    as many as keep a bucket within that. The number is a field and never comes from the length, which
    padding and later tokens would change. With num_buckets=1 and chunk_size >= S it is full attention with
    normalised keys, a query's own position excluded unless it is alone.
    """

    name: ClassVar[str] = "lsh"

    num_hashes: int = 4
    num_buckets: int = 16  # even, or 1
    chunk_size: int = 64
    hash_seed: int = 0  # the hash where no rng is given, as in evaluation
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # None: chosen from the chunk's size

    def __post_init__(self):
        check_count(self, "num_hashes", most=MOST_HASHES)
        buckets = self.num_buckets
        holds = is_int(buckets, 1) and buckets <= MOST_BUCKETS and (buckets == 1 or buckets % 2 == 0)
        accepted = f"1 or an even int above 0 and at most {MOST_BUCKETS}"
        check_field(self, "num_buckets", accepted, holds)
        check_count(self, "chunk_size")
        check_count(self, "hash_seed", least=0, most=2**31 - 1)
        check_softmax_fields(self)
        check_count(self, "query_block", optional=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=True, explicit_positions=False,
            cross_attention=False, grouped_queries=True, value_width=True, shared_key=True, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=False, time="O(R T (R c + buckets))", memory="O(R^2 T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        condition = (
            "num_buckets == 1 and chunk_size >= S; keys normalised, own position excluded unless alone"
        )
        return Limit({"num_buckets": 1, "chunk_size": max(length, 1)}, condition)

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Hashing, and the pairs of tokens that are spread evenly over the buckets.

        What other inputs ask for differs with their buckets; all in one is the most.
        """
        fewest, buckets_with_one_more = divmod(query_length, self.num_buckets)
        pairs = self.num_hashes * (
            (self.num_buckets - buckets_with_one_more) * self._pairs_in_a_bucket(fewest, causal)
            + buckets_with_one_more * self._pairs_in_a_bucket(fewest + 1, causal)
        )
        counted = softmax_flops(
            pairs, batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim
        )
        columns = self.num_buckets // 2
        hashing = 2 * batch * num_heads * self.num_hashes * query_length * head_dim * columns
        return Flops(counted.forward + hashing, counted.backward)

    def _pairs_in_a_bucket(self, tokens: int, causal: bool) -> int:
        rank = np.arange(tokens)
        chunk_start = rank // self.chunk_size * self.chunk_size
        first = np.maximum(chunk_start - self.chunk_size, 0)
        end = rank if causal else np.minimum(chunk_start + self.chunk_size, tokens) - 1
        return int((end - first).sum())

    def observe(self, query, key, mask, weights, *, params={}, gates=None):  # noqa: B006
        """`buckets`: how many hold the tokens in effect, 1 / the chance that two tokens share one."""
        bucket = lsh_buckets(self, query, None)[..., None] == jnp.arange(self.num_buckets)  # B N R T buckets
        if mask.query_valid is not None:
            bucket &= mask.query_valid[:, None, None, :, None]
        share = bucket.sum(3) / bucket.sum((3, 4))[..., None]  # of no token at all: not a number
        in_effect = 1 / (share**2).sum(-1).mean(-1)  # over the rounds
        # Below 2 any two tokens are more often in one bucket than not; of two buckets that is no fault.
        least = 2.0 if self.num_buckets > 2 else None
        return {"buckets": Observation(in_effect, f"buckets in effect, of {self.num_buckets}", least)}

    def matched_key(self, query, key):
        return unit(query if key is None else key).astype(query.dtype)

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        tokens = (
            query if mask.query_valid is None else jnp.where(mask.query_valid[..., None, None], query, key)
        )
        key = self.matched_key(query, key)
        buckets = lsh_buckets(self, tokens, rng)
        roles = _roles(mask)
        order = sort_by_bucket(buckets, roles.present, mask.key_segments, self.chunk_size, self.num_buckets)
        words = None
        if rng is not None and self.dropout_rate:
            words = query_words(jax.random.fold_in(rng, 1), query.shape[0], query.shape[2], query.shape[1])
        rounds = self._attend_rounds(query, key, value, order, roles, mask.causal, words)
        alone = self._attend_self(query, key, value, rounds[1], roles.both, words)
        return merge([rounds, alone])

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        buckets = lsh_buckets(self, query, None)
        order = sort_by_bucket(buckets, mask.key_valid, None, self.chunk_size, self.num_buckets)
        held = last_tokens(self.matched_key(query, key), value, mask, max_length)
        bucket, nth = (ring(x.transpose(0, 3, 1, 2), held.length, max_length) for x in (buckets, order.nth))
        return _Hashed(held, bucket, nth)

    def _step(self, query, key, value, cache, *, params, gates):
        slots, place = cache.bucket.shape[1], cache.tokens.length
        before = (places(place, slots) >= 0)[:, :, None, None]
        own = lsh_buckets(self, query, None).transpose(0, 3, 1, 2)
        same = before & (cache.bucket == own)
        nth = same.sum(1, keepdims=True, dtype=jnp.int32) // self.chunk_size
        seen = (same & (nth - cache.nth <= 1)).any(3)  # B S N
        itself = (jnp.arange(slots) == (place % slots)[:, None])[..., None]
        seen |= itself & ~seen.any(1, keepdims=True)
        held = with_token(cache.tokens, self.matched_key(query, key), value)
        cache = _Hashed(held, put(cache.bucket, own, place), put(cache.nth, nth, place))
        value = repeated(held.value, query.shape[2])
        output, _ = attend_one(query, held.key, value, seen.swapaxes(1, 2), Logits.of(self, query.shape[3]))
        return unless_full(output, held.length, slots, self.reach), cache

    def _attend_rounds(self, query, key, value, order: Order, roles: "_Roles", causal: bool, words):
        """Output B T N V and log-sum-exp B T N of the union of all rounds, each token counted once."""
        _, length, _, head_dim = query.shape
        rows = math.prod(order.index.shape[:3])
        block = min(self.query_block or band_block(rows, 2 * self.chunk_size, length), length)
        place = np.arange(length, dtype=np.int64)  # twice the largest chunk is beyond int32
        ahead = 0 if causal else self.chunk_size - 1
        tiles = static_tiles(
            np.maximum(place - 2 * self.chunk_size + 1, 0), np.minimum(place + ahead, length - 1), block, None
        )
        sides = Sides(*_tokens(order, roles))
        if words is not None:
            first, second = (jnp.take_along_axis(word[:, :, None], order.index, -1) for word in words)
            dropout = Dropout((_fold(first)[:, :, None], _fold(second)[:, :, None]), _fold(order.index))
            sides = sides._replace(dropout=dropout)
        output, lse = blockwise(
            *(in_order(x, order) for x in (query, key, value)),
            tiles=without_peeling(tiles), visible=_sees_earlier if causal else _sees_others, sides=sides,
            logits=Logits.of(self, head_dim),
            dropout_rate=self.dropout_rate,
        )  # fmt: skip
        output, lse = restored(output, order), restored(lse[..., None], order)[..., 0]
        return merge([(output[:, r], lse[:, r]) for r in range(self.num_hashes)])

    def _attend_self(self, query, key, value, rounds_lse, both, words):
        """Each token that saw nobody sees itself, where it is `both` a query and a key (b T, None: all)."""
        wide = rounds_lse.dtype
        logits = Logits.of(self, query.shape[3])
        own = jnp.einsum("BTNH,BTNH->BTN", query, key, preferred_element_type=wide)
        alone = rounds_lse == -jnp.inf
        if both is not None:
            alone &= both[:, :, None]
        output = value.astype(wide)
        if words is not None:
            keep = kept(words[0], words[1], jnp.arange(query.shape[1]), self.dropout_rate).swapaxes(1, 2)
            output = jnp.where(keep[..., None], output / (1 - self.dropout_rate), 0)
        return jnp.where(alone[..., None], output, 0), jnp.where(
            alone, logits.cap(own * logits.scale)[0], -jnp.inf
        )


class _Hashed(NamedTuple):
    """What decoding remembers: tokens, their keys normalised, and of each, head and round its bucket and the
    number of its chunk in that, B S N R."""

    tokens: Tokens
    bucket: Any
    nth: Any


class _Tokens(NamedTuple):
    """One side of a tile: token index, chunk in this round, chunks in the earlier rounds; each B*R N T."""

    index: Any
    chunk: Any
    earlier: tuple


def _near(query_chunk, key_chunk):
    ahead = query_chunk[..., :, None] - key_chunk[..., None, :]
    return ahead.astype(jnp.uint32) <= 1  # 0 or 1: what is below 0 wraps to a large number


def _sees(query: _Tokens, key: _Tokens):
    seen = _near(query.chunk, key.chunk)
    for query_chunk, key_chunk in zip(query.earlier, key.earlier, strict=True):
        seen &= ~_near(query_chunk, key_chunk)
    return seen


def _sees_earlier(query: _Tokens, key: _Tokens):
    return _sees(query, key) & (key.index[..., None, :] < query.index[..., :, None])


def _sees_others(query: _Tokens, key: _Tokens):
    return _sees(query, key) & (key.index[..., None, :] != query.index[..., :, None])


class _Roles(NamedTuple):
    """Which tokens are queries, which are keys, which are either and which both; b T, None for all."""

    seeing: Any
    seen: Any
    present: Any
    both: Any


def _roles(mask: Mask) -> _Roles:
    """A token that is labelled otherwise as a query than as a key is in no segment, so neither."""
    seeing, seen = mask.query_valid, mask.key_valid
    present = None if seeing is None or seen is None else seeing | seen
    if mask.query_segments is not None:
        one_label = mask.query_segments == mask.key_segments
        seeing, seen, present = (one_label if x is None else x & one_label for x in (seeing, seen, present))
    given = [x for x in (seeing, seen) if x is not None]
    return _Roles(seeing, seen, present, functools.reduce(jnp.logical_and, given) if given else None)


def _tokens(order: Order, roles: _Roles) -> tuple[_Tokens, _Tokens]:
    """Both sides of the tiles, in sorted order; who has not the role has a chunk that none is near to."""
    num_hashes = order.index.shape[2]

    def side(chunk, absent):
        # Of round q's chunk numbers, in the order of round r, only those of earlier rounds count.
        every = jnp.take_along_axis(chunk[:, :, None], order.index[:, :, :, None], -1)  # B N R R T
        now = jnp.stack([every[:, :, r, r] for r in range(num_hashes)], 2)
        past = np.tri(num_hashes, k=-1, dtype=bool)[:, :, None]
        every = jnp.where(past, every, absent)
        return _Tokens(
            _fold(order.index), _fold(now), tuple(_fold(every[:, :, :, q]) for q in range(num_hashes - 1))
        )

    def only(role, absent):
        return order.chunk if role is None else jnp.where(role[:, None, None], order.chunk, absent)

    return side(only(roles.seeing, -2), -2), side(only(roles.seen, NOWHERE), NOWHERE)


def _fold(array):
    """B N R T -> B*R N T: rounds become rows of the batch."""
    return array.swapaxes(1, 2).reshape(-1, array.shape[1], array.shape[3])
