"""Queries, keys and values as the variants use them."""

import jax.numpy as jnp

from attention.mask import Mask


def operands(query, key, value, mask: Mask):
    """query BTNH, key BSKH, value BSKV with padded tokens zeroed, so that what they held cannot spread.

    If `key` is None the queries are the keys; they have N heads, so the values are repeated to as many.
    """
    if key is None:
        key, value = query, jnp.repeat(value, query.shape[2] // value.shape[2], axis=2)
    return (
        _zeroed(query, mask.query_valid),
        _zeroed(key, mask.key_valid),
        _zeroed(value, mask.key_valid),
    )


def _zeroed(array, valid):
    return array if valid is None else jnp.where(valid[:, :, None, None], array, 0)
