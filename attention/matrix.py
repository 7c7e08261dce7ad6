"""The effective attention matrix of any variant."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from attention.check import check_tokens
from attention.interface import Attention, Params
from attention.mask import Mask


def attention_matrix(
    variant: Attention,
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"] | None,
    mask: Mask,
    *,
    params: Params = {},  # noqa: B006 (never written to)
    rng: Key[Array, ""] | None = None,
    gates: Float[Array, "B T N F"] | None = None,
) -> Float[Array, "B N T S"]:
    """What weight each query ends up giving to each key, in the query's dtype.

    The output is linear in the values, so with one-hot rows for values it is the matrix; it is taken in
    slices of H columns, at least one, one call each. Rows of a softmax variant sum to 1, or to 0 if they
    see nothing.
    Memory O(T S): for looking at, not for training. Raises TypeError for what is no variant.
    """
    if not isinstance(variant, Attention):
        raise TypeError(
            f"variant must be an Attention, as attention.make gives, not {type(variant).__name__}"
        )
    keys = query if key is None else key
    check_tokens(query=query, key=keys)
    batch, length, num_kv_heads, width = keys.shape
    if not length:
        return jnp.zeros((batch, query.shape[2], query.shape[1], 0), query.dtype)
    width = max(width, 1)

    def columns(start):
        one_hot = jnp.arange(length)[:, None] == start + jnp.arange(width)
        value = jnp.broadcast_to(
            one_hot[None, :, None].astype(query.dtype), (batch, length, num_kv_heads, width)
        )
        return variant(query, key, value, mask, params=params, rng=rng, gates=gates)

    # Mapped, so that it is compiled once however many slices there are.
    matrix = jnp.moveaxis(lax.map(columns, jnp.arange(0, length, width)), (3, 0), (1, 3))  # B N T slices W
    return matrix.reshape(*matrix.shape[:3], -1)[..., :length]
