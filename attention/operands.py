"""Queries, keys and values as the variants use them."""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from attention.mask import Mask


def operands(query, key, value, mask: Mask):
    """query BTNH, key BSKH, value BSKV with padded tokens zeroed, so that what they held cannot spread.

    If `key` is None the queries are the keys; they have N heads, so the values are repeated to as many.
    """
    if key is None:
        value = repeated(value, query.shape[2])
    return tokens(query, key, value, mask)


def tokens(query, key, value, mask: Mask):
    """The same with the values' own heads, though the keys may be the queries."""
    key = query if key is None else key
    query, key, value = (_at_least_one_wide(x) for x in (query, key, value))
    return (
        zeroed(query, mask.query_valid),
        zeroed(key, mask.key_valid),
        zeroed(value, mask.key_valid),
    )


def gates_of_tokens(gates, mask: Mask):
    """gates B T N F, 0 for tokens that are padding as a query and, where keys are as many, as a key too."""
    if gates is None or mask.query_valid is None:
        return gates
    real = mask.query_valid
    if mask.key_valid is not None and mask.key_valid.shape[1] == gates.shape[1]:
        real = real | mask.key_valid
    return zeroed(gates, real)


def wide(x: Float[Array, "*L"]) -> Float[Array, "*L"]:
    """The array in float32 or wider."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def unit(x: Float[Array, "... H"]) -> Float[Array, "... H"]:
    """x / max(|x|, 1e-6), float32 or wider."""
    x = wide(x)
    return x * lax.rsqrt(jnp.maximum((x**2).sum(-1, keepdims=True), 1e-12))


def repeated(x: Float[Array, "B S K V"], num_heads: int) -> Float[Array, "B S N V"]:
    """Key heads as many as query heads."""
    return x if x.shape[2] == num_heads else jnp.repeat(x, num_heads // x.shape[2], axis=2)


def blocks(x: Any, block: int) -> Any:
    """B T ... -> B C W ..., zeros filling the last block."""
    width = [(0, 0)] * x.ndim
    width[1] = (0, -x.shape[1] % block)
    x = jnp.pad(x, width)
    return x.reshape(x.shape[0], -1, block, *x.shape[2:])


def is_empty(query, value) -> bool:
    """Whether there is no row at all, or no key. Widths may be 0."""
    return 0 in query.shape[:3] or value.shape[1] == 0


def _at_least_one_wide(array):
    """Width 0 becomes one zero: q.k stays 0, and a log-sum-exp can be had without values."""
    return array if array.shape[-1] else jnp.zeros((*array.shape[:-1], 1), array.dtype)


def zeroed(array, valid):
    """An array B T ... of four axes, 0 where `valid` (b T, None: all are) is False."""
    return array if valid is None else jnp.where(valid[:, :, None, None], array, 0)
