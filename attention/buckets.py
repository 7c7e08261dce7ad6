"""Tokens by bucket: what they hash to, and their order by bucket in each round of hashing."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from attention.check import check_rng, check_tokens
from attention.operands import unit

if TYPE_CHECKING:
    from attention.lsh import LSH

HASH_BLOCK = 1024  # tokens hashed at once


def lsh_buckets(
    variant: LSH, query: Float[Array, "B T N H"], rng: Key[Array, ""] | None
) -> Int[Array, "B N R T"]:
    """The bucket of each token in each round, int32; `rng=None` hashes with `variant.hash_seed`."""
    check_tokens(query=query)
    check_rng(rng)
    batch, length, num_heads, head_dim = query.shape
    num_buckets = variant.num_buckets
    if num_buckets == 1:
        return jnp.zeros((batch, num_heads, variant.num_hashes, length), jnp.int32)
    points = unit(lax.stop_gradient(query))
    rng = jax.random.key(variant.hash_seed) if rng is None else jax.random.fold_in(rng, 0)
    directions = jax.random.normal(rng, (variant.num_hashes, head_dim, num_buckets // 2), points.dtype)

    def hashed(points_BWNH):
        x = jnp.einsum("BWNH,RHC->BWNRC", points_BWNH, directions)
        # The first index at which [x, -x] is greatest, by two plain reductions, which a CPU vectorises.
        greatest = jnp.abs(x).max(-1, keepdims=True)
        column = jnp.arange(num_buckets // 2, dtype=jnp.int32)
        mirrored = jnp.where(-x == greatest, column + num_buckets // 2, num_buckets)
        return jnp.where(x == greatest, column, mirrored).min(-1)

    block = min(HASH_BLOCK, length)
    padded = jnp.pad(points, ((0, 0), (0, -length % block), (0, 0), (0, 0)))
    blocks = padded.reshape(batch, -1, block, num_heads, head_dim).swapaxes(0, 1)
    buckets_CBWNR = lax.map(hashed, blocks)
    buckets = buckets_CBWNR.transpose(1, 3, 4, 0, 2).reshape(batch, num_heads, variant.num_hashes, -1)
    return buckets[..., :length]


class Order(NamedTuple):
    """The order of tokens by bucket, in each round; all B N R T int32.

    `index[p]` is the token at sorted place p and `place` its inverse. `chunk[i]` numbers the chunk of token
    i so that chunks that follow each other in a bucket have numbers that do, and no others; `nth[i]` counts
    it from the bucket's first.
    """

    index: Any
    place: Any
    chunk: Any
    nth: Any


def sort_by_bucket(
    buckets: Int[Array, "B N R T"], present, segments, chunk_size: int, num_buckets: int
) -> Order:
    """Order by (segment, bucket, index), tokens that are not present last and in no chunk that is seen."""
    length = buckets.shape[-1]
    iota = lax.broadcasted_iota(jnp.int32, buckets.shape, 3)
    if present is not None:
        buckets = jnp.where(present[:, None, None], buckets, num_buckets)
    if segments is None and (num_buckets + 1) * length < 2**31:
        packed = jnp.sort(buckets * length + iota, axis=-1)  # one integer to sort, not a pair
        index, groups = packed % length, [packed // length]
    else:
        labels = [buckets]
        if segments is not None:
            labels.insert(0, jnp.broadcast_to(segments.astype(jnp.int32)[:, None, None], buckets.shape))
        *groups, index = lax.sort([*labels, iota], dimension=-1, num_keys=len(labels) + 1)
    opens = jnp.zeros(buckets.shape, bool).at[..., 0].set(True)
    for group in groups:
        opens = opens.at[..., 1:].max(group[..., 1:] != group[..., :-1])
    rank = iota - lax.cummax(jnp.where(opens, iota, 0), axis=3)
    chunk = jnp.cumsum(rank % chunk_size == 0, -1, dtype=jnp.int32) + jnp.cumsum(opens, -1, dtype=jnp.int32)
    place = _inverse(index, iota)
    chunk, nth = (jnp.take_along_axis(x, place, -1) for x in (chunk, rank // chunk_size))
    return Order(index, place, chunk, nth)


def _inverse(index, iota):
    scatter = jax.vmap(lambda i, x: jnp.zeros_like(x).at[i].set(x, unique_indices=True))
    flat = scatter(index.reshape(-1, index.shape[-1]), iota.reshape(-1, index.shape[-1]))
    return flat.reshape(index.shape)


def in_order(array: Float[Array, "B T N H"], order: Order) -> Float[Array, "BR T N H"]:
    """Tokens of every round in that round's order, rounds as rows of the batch."""
    rows = array.transpose(0, 2, 1, 3)[:, None]
    moved = _reorder(rows, order.index.swapaxes(1, 2), order.place.swapaxes(1, 2))
    # Turned back last, where it meets the engine's own turn, and neither is done.
    return moved.reshape(-1, *moved.shape[2:]).transpose(0, 2, 1, 3)


def restored(array: Float[Array, "BR T N V"], order: Order) -> Float[Array, "B R T N V"]:
    """The inverse of `in_order`, rounds kept apart."""
    rows = array.transpose(0, 2, 1, 3)
    rows = rows.reshape(order.index.shape[0], -1, *rows.shape[1:])
    moved = _reorder(rows, order.place.swapaxes(1, 2), order.index.swapaxes(1, 2))
    return moved.transpose(0, 1, 3, 2, 4)


@jax.custom_vjp
def _reorder(array: Float[Array, "B r N T H"], index, inverse) -> Float[Array, "B R N T H"]:
    """array[..., index, :] for permutations (B R N T), whose gradient is a gather too and not a scatter."""
    return _gather(array, index)


def _gather(array, index):
    row = jax.vmap(lambda x, i: x[i])
    if array.shape[1] == index.shape[1]:
        return jax.vmap(jax.vmap(row))(array, index)
    return jax.vmap(jax.vmap(row, (None, 0)))(array[:, 0], index)


def _reorder_forward(array, index, inverse):
    return _gather(array, index), (inverse, array.shape[1])


def _reorder_backward(residuals, cotangent):
    inverse, rounds = residuals
    back = _gather(cotangent, inverse)
    if rounds != back.shape[1]:
        back = functools.reduce(jnp.add, jnp.unstack(back, axis=1))[:, None]
    return back, None, None


_reorder.defvjp(_reorder_forward, _reorder_backward)
