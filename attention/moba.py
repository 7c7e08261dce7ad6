"""Mixture of block attention: each query attends to its own block of keys and to the few it likes best."""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from attention.cache import Tokens, attend_chosen, last_tokens, with_token
from attention.check import check_count, check_softmax_fields
from attention.cost import softmax_flops
from attention.dropout import for_tokens
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits
from attention.mask import Mask
from attention.operands import blocks, wide
from attention.routed import blocks_of_queries, routed_attention

SCORED = 256  # queries that are held against all blocks at once


@dataclasses.dataclass(frozen=True)
class MoBA(SoftmaxAttention):
    """Each query attends to `top_k` blocks of keys: its own, and those whose mean key it agrees with most.

    Keys lie in blocks I_j of `block_size`. Block j has the score s_j = q_t.mean(k_s, s in I_j); the query's
    own block has the score inf and, if causal, later blocks have -inf. With C_t the `top_k` blocks of the
    greatest scores, output_t = softmax(scale q_t.k_s) v_s over the keys of all blocks in C_t together, if
    causal only those with s <= t (Lu et al. 2025, eq. 2, 3, 5 and 6). `top_k` counts the own block, as in the
    paper; a query with fewer blocks behind it sees all of them. Each query head chooses by itself, the first
    of equal scores wins, and no gradient goes through the choice.

    Blocks lie by index: a padded key takes up room in a block but has no part in its mean, and a block of
    padding is never chosen. Two-sided, later blocks are as good as earlier ones; the paper has no such form.

    With k = top_k, W = block_size O(T (k W + T / W)) time, as each query is held against all blocks, and
    O(k T) memory. It is full attention if top_k >= the number of blocks.
    """

    name: ClassVar[str] = "moba"

    block_size: int = 64
    top_k: int = 4
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # None: chosen from the block's size

    def __post_init__(self):
        check_count(self, "block_size")
        check_count(self, "top_k")
        check_softmax_fields(self)
        check_count(self, "query_block", optional=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=False, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=False, time="O(T (k W + T / W))", memory="O(k T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return self.block_size - 1 if self.top_k == 1 else math.inf

    def limit(self, length: int) -> Limit:
        return Limit({"top_k": -(-max(length, 1) // self.block_size)}, "top_k >= S / block_size")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Pairs in the blocks that are seen, and the scores of blocks, which have no backward.

        Two-sided, a last block that is not whole counts as one.
        """
        size = min(self.block_size, max(key_length, 1))
        position = np.arange(query_length, dtype=np.int64) + (key_length - query_length)
        num_blocks, own = -(-key_length // size), position // size
        if causal:
            pairs = np.where(own < 0, 0, position % size + 1 + np.clip(own, 0, self.top_k - 1) * size)
            scored = np.maximum(own, 0)
        else:
            pairs = np.full_like(own, min(self.top_k * size, key_length))
            scored = np.full_like(own, num_blocks)
        counted = softmax_flops(
            int(pairs.sum()), batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim
        )
        scores = 2 * batch * num_heads * head_dim * int(scored.sum())
        return Flops(counted.forward + scores, counted.backward)

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        size = min(self.block_size, max(query.shape[1], key.shape[1]))
        means, real = block_means(lax.stop_gradient(key), mask.key_valid, size)
        first = key.shape[1] - query.shape[1]
        chosen = chosen_blocks(lax.stop_gradient(query), means, real, mask, size, self.top_k, first)
        return routed_attention(
            query, key, value, chosen, mask, block_size=size, query_block=self.query_block,
            logits=Logits.of(self, query.shape[3]), dropout_rate=self.dropout_rate,
            dropout=for_tokens(rng, self.dropout_rate, query.shape, value.shape),
        )  # fmt: skip

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        whole = jnp.pad(wide(key), ((0, 0), (0, max_length - key.shape[1]), (0, 0), (0, 0)))
        sums = blocks(whole, min(self.block_size, max_length)).sum(2)
        return _Cache(last_tokens(key, value, mask, max_length), sums)

    def _step(self, query, key, value, cache, *, params, gates):
        held, num_blocks = with_token(cache.tokens, key, value), cache.sums.shape[1]
        size = min(self.block_size, held.key.shape[1])
        own = cache.tokens.length // size
        sums = cache.sums.at[jnp.arange(len(own)), own].add(wide(key[:, 0]), mode="drop")
        seen = (jnp.arange(num_blocks) <= own[:, None])[:, None]
        chosen = best_blocks(query, sums / size, own[:, None], seen, self.top_k)[:, :, 0]
        output = attend_chosen(query, held, chosen, size, Logits.of(self, query.shape[3]))
        return output, _Cache(held, sums)


class _Cache(NamedTuple):
    """What decoding remembers: all tokens, and the sum of each block's keys, B E K H."""

    tokens: Tokens
    sums: Any


def block_means(
    key: Float[Array, "B S K H"], valid: Bool[Array, "b S"] | None, block_size: int
) -> tuple[Float[Array, "B E K H"], Bool[Array, "b E"]]:
    """The mean of each block's real keys, float32 or wider, and whether there are any.

    Padded keys are zero, and so are those that fill the last block.
    """
    valid = jnp.ones((1, key.shape[1]), bool) if valid is None else valid
    count, total = (blocks(x, block_size).sum(2) for x in (valid, wide(key)))
    return total / jnp.maximum(count, 1)[..., None, None], count > 0


def chosen_blocks(
    query: Float[Array, "B T N H"],
    means: Float[Array, "B E K H"],
    real: Bool[Array, "b E"],
    mask: Mask,
    block_size: int,
    top_k: int,
    first: int,
) -> Int[Array, "B N T M"]:
    """The blocks that each query chooses, E where there are no more; the first query stands at `first`."""
    block = jnp.arange(means.shape[1], dtype=jnp.int32)

    def choose(query_BWNH, seeing_bW, place_W):
        own = jnp.floor_divide(place_W, block_size)[None]
        seen = real[:, None] & seeing_bW[:, :, None]
        seen &= block <= own[..., None] if mask.causal else True
        return best_blocks(query_BWNH, means, own, seen, top_k)

    return blocks_of_queries(choose, query, mask.query_valid, first, SCORED)


def best_blocks(
    query: Float[Array, "B W N H"],
    means: Float[Array, "B E K H"],
    own: Int[Array, "b W"],
    seen: Bool[Array, "c W E"],
    top_k: int,
) -> Int[Array, "B N W M"]:
    """Of the blocks that each query may see its own one and those it agrees with most; E: there is none."""
    batch, _, num_heads, head_dim = query.shape
    num_blocks, most = means.shape[1], min(top_k, means.shape[1])
    grouped = wide(query).reshape(batch, -1, means.shape[2], num_heads // means.shape[2], head_dim)
    score = jnp.einsum("BWKGH,BEKH->BKGWE", grouped, means, precision=lax.Precision.HIGHEST)
    itself = jnp.arange(num_blocks, dtype=jnp.int32) == own[..., None]
    score = jnp.where(itself[:, None, None], jnp.inf, score)
    score, index = lax.top_k(jnp.where(seen[:, None, None], score, -jnp.inf), most)
    return jnp.where(score > -jnp.inf, index, num_blocks).reshape(batch, num_heads, -1, most)
