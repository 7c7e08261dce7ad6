"""What decoding remembers of the tokens so far, in arrays whose shapes never change.

Rings: token p lies in slot p modulo the number of slots, so that the last ones are there and none is moved.
An empty cache is zeros.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from attention.logits import Logits
from attention.mask import Mask
from attention.softmax import softmax_of


class Tokens(NamedTuple):
    """Keys and values of the last tokens, and how many tokens there were, B."""

    key: Any
    value: Any
    length: Any


def lengths_of(mask: Mask) -> Int[Array, " B"]:
    """How many tokens of each row are real, all in front."""
    assert mask.key_valid is not None  # decoding always has it
    return mask.key_valid.sum(1, dtype=jnp.int32)


def last_tokens(key, value, mask: Mask, slots: int) -> Tokens:
    """The last `slots` of the tokens that are real, B T K H and B T K V."""
    length = lengths_of(mask)
    return Tokens(ring(key, length, slots), ring(value, length, slots), length)


def with_token(cache: Tokens, key, value) -> Tokens:
    """One more token, B 1 K H and B 1 K V, in place of the oldest where there is no room."""
    place = cache.length
    return Tokens(put(cache.key, key, place), put(cache.value, value, place), place + 1)


def ring(x: Shaped[Array, "B T *L"], length: Int[Array, " B"], slots: int) -> Shaped[Array, "B R *L"]:
    """The last `slots` of the first `length` entries of each row, each in its slot."""
    place = places(length, slots)
    index = place.reshape(*place.shape, *[1] * (x.ndim - 2))
    return jnp.where(index >= 0, jnp.take_along_axis(x, jnp.maximum(index, 0), 1), 0)


def put(
    ring: Shaped[Array, "B R *L"], x: Shaped[Array, "B 1 *L"], place: Int[Array, " B"], where: Any = True
) -> Shaped[Array, "B R *L"]:
    """The ring with x as entry `place` of each row, of those rows alone `where` (B) holds."""
    slots = ring.shape[1]
    if ring.shape[2:] != x.shape[2:]:  # or one head would be spread over all
        raise ValueError(f"of each token the cache holds {ring.shape[2:]} (heads, width), got {x.shape[2:]}")
    slot = jnp.where(where, place % slots, slots)  # beyond the last one: dropped
    return ring.at[jnp.arange(len(ring)), slot].set(x[:, 0], mode="drop")


def places(length: Int[Array, " B"], slots: int) -> Int[Array, "B R"]:
    """Which entry lies in each slot, after `length` of them; below 0 if none does."""
    last = length[:, None] - 1
    return last - (last - jnp.arange(slots, dtype=jnp.int32)) % slots


def attend_cached(
    query: Float[Array, "B 1 N H"], cache: Tokens, logits: Logits, *, reach: float
) -> Float[Array, "B 1 N V"]:
    """Softmax attention of the last token to all that the cache holds."""
    held = places(cache.length, cache.key.shape[1]) >= 0
    output, _ = attend_one(query, cache.key, cache.value, held[:, None], logits)
    return unless_full(output, cache.length, cache.key.shape[1], reach)


def attend_placed(
    query: Float[Array, "B 1 N H"], cache: Tokens, place: Int[Array, "b P"], logits: Logits, *, reach: float
) -> Float[Array, "B 1 N V"]:
    """Softmax attention of the last token to the tokens at these places, where there are such so far."""
    slots = cache.key.shape[1]
    last = cache.length[:, None] - 1
    held = (place >= 0) & (place <= last) & (place > last - slots)
    slot = jnp.broadcast_to(place % slots, held.shape)[..., None, None]
    key, value = (jnp.take_along_axis(x, slot, 1) for x in (cache.key, cache.value))
    output, _ = attend_one(query, key, value, held[:, None], logits)
    return unless_full(output, cache.length, slots, reach)


def attend_chosen(
    query: Float[Array, "B 1 N H"], cache: Tokens, chosen: Int[Array, "B L M"], size: int, logits: Logits
) -> Float[Array, "B 1 N V"]:
    """Softmax attention of the last token to the blocks of `size` tokens that each of L choosers has chosen.

    Each stands for N / L heads, K divides L; blocks after the last token are none. The cache holds all.
    """
    (batch, choosers, _), (slots, num_kv_heads) = chosen.shape, cache.key.shape[1:3]
    place = (chosen[..., None] * size + jnp.arange(size)).reshape(batch, choosers, -1)
    held = place < cache.length[:, None, None]
    row, head = jnp.arange(batch)[:, None, None], jnp.arange(choosers)[:, None] * num_kv_heads // choosers
    key, value = (
        x[row, place % slots, head].reshape(batch * choosers, -1, 1, x.shape[3])
        for x in (cache.key, cache.value)
    )
    queries = query.reshape(batch * choosers, 1, -1, query.shape[3])
    output, _ = attend_one(queries, key, value, held.reshape(batch * choosers, 1, -1), logits)
    return unless_full(output.reshape(*query.shape[:3], -1), cache.length, slots, math.inf)


def attend_one(
    query: Float[Array, "B 1 N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K V"],
    seen: Bool[Array, "B n S"],
    logits: Logits,
) -> tuple[Float[Array, "B 1 N V"], Float[Array, "B 1 N"]]:
    """One query's softmax attention to the keys that each head sees: output and log-sum-exp, both wide."""
    wide = jnp.promote_types(query.dtype, jnp.float32)
    query = query.reshape(*query.shape[:2], key.shape[2], -1, query.shape[3])
    scores = jnp.einsum("BTKGH,BSKH->BKGTS", query, key, preferred_element_type=wide)
    scores = logits.cap(scores * logits.scale)[0]
    num_heads = scores.shape[1] * scores.shape[2]
    seen = jnp.broadcast_to(seen, (len(key), num_heads, key.shape[1])).reshape(scores.shape)
    return softmax_of(jnp.where(seen, scores, -jnp.inf), value)


def unless_full(output: Float[Array, "B 1 N V"], length: Int[Array, " B"], slots: int, reach: float):
    """NaN in rows that had more tokens than there are slots, if what was lost could still be seen.

    How long a row is is known only when run, where nothing can be refused; a number would be a wrong one.
    """
    if slots > reach:
        return output
    return jnp.where((length > slots)[:, None, None, None], jnp.nan, output)


def bytes_of(cache: Any) -> int:
    """Of arrays, or of shapes and dtypes as `jax.eval_shape` gives them."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(cache))
