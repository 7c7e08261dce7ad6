"""Dropout on attention weights whose bits depend on (rng, batch row, head, query, key) alone."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.random import threefry2x32_p
from jaxtyping import Array, Float, Key, UInt32


class Dropout(NamedTuple):
    """What decides which weights are dropped: two words for each row and head, and token indices.

    `keys` (B K G 2) are uint32, `query_index` (b k T) and `key_index` (b k S) integers, b and k broadcast.
    """

    keys: Any
    query_index: Any
    key_index: Any


def for_tokens(
    rng: Key[Array, ""] | None, rate: float, query_shape: tuple[int, ...], value_shape: tuple[int, ...]
) -> Dropout | None:
    """Dropout for query B T N H and value B S K V in their own order; None at rate 0."""
    if rng is None or rate == 0:
        return None
    batch, query_length, num_heads, _ = query_shape
    keys = row_keys(rng, batch, num_heads).reshape(batch, value_shape[2], -1, 2)
    return Dropout(keys, jnp.arange(query_length)[None, None], jnp.arange(value_shape[1])[None, None])


def row_keys(rng: Key[Array, ""], batch: int, num_heads: int) -> UInt32[Array, "B N 2"]:
    """Two words for each batch row and head, the same whatever the other sizes are."""

    def words(row, head):
        return jax.random.bits(jax.random.fold_in(jax.random.fold_in(rng, row), head), (2,), jnp.uint32)

    return jax.vmap(jax.vmap(words, (None, 0)), (0, None))(jnp.arange(batch), jnp.arange(num_heads))


def drop(
    weight: Float[Array, "B K G T S"], dropout: Dropout | None, rate: float
) -> Float[Array, "B K G T S"]:
    """Weights kept with probability 1 - rate and then divided by it; as they are if `dropout` is None."""
    if dropout is None:
        return weight
    query, key = dropout.query_index[:, :, None, :, None], dropout.key_index[:, :, None, None, :]
    return drop_pairs(weight, dropout.keys[..., None, None, :], query, key, rate)


def drop_pairs(weight, keys, query, key, rate: float):
    """Drop the weight of each (query index, key index) under its row's two words; all broadcast to `weight`.

    `keys` has those words on a last axis of its own. The bits are a counter-mode hash (Threefry, Salmon et
    al. 2011) of the indices.
    """
    shape = jnp.broadcast_shapes(keys.shape[:-1], query.shape, key.shape)
    words = (jnp.broadcast_to(x.astype(jnp.uint32), shape) for x in (keys[..., 0], keys[..., 1], query, key))
    bits, _ = threefry2x32_p.bind(*words)
    return jnp.where(bits >= jnp.uint32(round(rate * 2**32)), weight / (1 - rate), 0)
