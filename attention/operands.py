"""Queries, keys and values as the variants use them."""

import jax.numpy as jnp

from attention.mask import Mask


def operands(query, key, value, mask: Mask):
    """query BTNH, key BSKH, value BSKV with padded tokens zeroed, so that what they held cannot spread.

    If `key` is None the queries are the keys; they have N heads, so the values are repeated to as many.
    """
    if key is None:
        key, value = query, jnp.repeat(value, query.shape[2] // value.shape[2], axis=2)
    query, key, value = (_at_least_one_wide(x) for x in (query, key, value))
    return (
        _zeroed(query, mask.query_valid),
        _zeroed(key, mask.key_valid),
        _zeroed(value, mask.key_valid),
    )


def is_empty(query, value) -> bool:
    """Whether there is no row at all, or no key. Widths may be 0."""
    return 0 in query.shape[:3] or value.shape[1] == 0


def _at_least_one_wide(array):
    """Width 0 becomes one zero: q.k stays 0, and a log-sum-exp can be had without values."""
    return array if array.shape[-1] else jnp.zeros((*array.shape[:-1], 1), array.dtype)


def _zeroed(array, valid):
    return array if valid is None else jnp.where(valid[:, :, None, None], array, 0)
