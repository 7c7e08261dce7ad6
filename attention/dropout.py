"""Dropout on attention weights whose bits depend on (rng, batch row, head, query, key) alone."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.random import threefry2x32_p
from jaxtyping import Array, Bool, Float, Key, UInt32


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
    return jnp.where(_kept(dropout, rate), weight / (1 - rate), 0)


def _kept(dropout: Dropout, rate: float) -> Bool[Array, "B K G T S"]:
    """A counter-mode hash (Threefry, Salmon et al. 2011) of query and key index under the row's key."""
    first, second = dropout.keys[..., 0, None, None], dropout.keys[..., 1, None, None]
    query, key = dropout.query_index[:, :, None, :, None], dropout.key_index[:, :, None, None, :]
    shape = jnp.broadcast_shapes(first.shape, query.shape, key.shape)
    words = (jnp.broadcast_to(x.astype(jnp.uint32), shape) for x in (first, second, query, key))
    bits, _ = threefry2x32_p.bind(*words)
    return bits >= jnp.uint32(round(rate * 2**32))
