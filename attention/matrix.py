"""The effective attention matrix of any variant."""

import jax.numpy as jnp
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
    width, columns = max(width, 1), []
    for start in range(0, length, width):
        one_hot = jnp.eye(length, width, -start, dtype=query.dtype)[None, :, None]
        value = jnp.broadcast_to(one_hot, (batch, length, num_kv_heads, width))
        columns.append(variant(query, key, value, mask, params=params, rng=rng, gates=gates))
    matrix = jnp.concatenate(columns, -1) if columns else jnp.zeros((*query.shape[:3], 0), query.dtype)
    return jnp.moveaxis(matrix[..., :length], 2, 1)
