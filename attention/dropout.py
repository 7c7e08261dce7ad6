"""Dropout on attention weights whose bits depend on (rng, batch row, head, query, key) alone."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.random import threefry2x32_p
from jaxtyping import Array, Float, Key, UInt32


class Dropout(NamedTuple):
    """What decides which weights are dropped.

    `words` are two uint32 arrays (B K G T), random bits of each query; `key_index` (b k S) are integers.
    """

    words: tuple[Any, Any]
    key_index: Any


def for_tokens(
    rng: Key[Array, ""] | None, rate: float, query_shape: tuple[int, ...], value_shape: tuple[int, ...]
) -> Dropout | None:
    """Dropout for query B T N H and value B S K V in their own order; None at rate 0."""
    if rng is None or rate == 0:
        return None
    batch, query_length, num_heads, _ = query_shape
    first, second = query_words(rng, batch, num_heads, query_length)
    shape = (batch, value_shape[2], -1, query_length)
    return Dropout((first.reshape(shape), second.reshape(shape)), jnp.arange(value_shape[1])[None, None])


def query_words(
    rng: Key[Array, ""], batch: int, num_heads: int, length: int
) -> tuple[UInt32[Array, "B N T"], UInt32[Array, "B N T"]]:
    """64 random bits for each query, the same whatever the sizes are: Threefry (Salmon et al. 2011) of t."""

    def key(row, head):
        return jax.random.bits(jax.random.fold_in(jax.random.fold_in(rng, row), head), (2,), jnp.uint32)

    keys = jax.vmap(jax.vmap(key, (None, 0)), (0, None))(jnp.arange(batch), jnp.arange(num_heads))
    shape = (batch, num_heads, length)
    counters = jnp.broadcast_to(jnp.arange(length, dtype=jnp.uint32), shape)
    left, right = (jnp.broadcast_to(keys[..., i, None], shape) for i in (0, 1))
    first, second = threefry2x32_p.bind(left, right, counters, jnp.zeros(shape, jnp.uint32))
    return first, second


def drop(
    weight: Float[Array, "B K G T S"], dropout: Dropout | None, rate: float
) -> Float[Array, "B K G T S"]:
    """Weights kept with probability 1 - rate and then divided by it; as they are if `dropout` is None."""
    if dropout is None:
        return weight
    first, second = (words[..., None] for words in dropout.words)
    return jnp.where(kept(first, second, dropout.key_index[:, :, None, None], rate), weight / (1 - rate), 0)


def kept(first, second, key_index, rate: float):
    """Whether each weight is kept: a counter-based generator for each query, its words are the state.

    SplitMix (Steele et al. 2014) on 32 bits, counter times the golden ratio and the mixing function of
    MurmurHash3, the second word put in between. Threefry would outweigh the attention.
    """
    x = key_index.astype(jnp.uint32) * jnp.uint32(0x9E3779B9) + first
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B) ^ second
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    threshold = min(round(rate * 2**32), 2**32 - 1)  # a rate next to 1 rounds to 1
    return (x ^ (x >> 16)) >= jnp.uint32(threshold)
