"""Heads of keys and values against heads of queries."""

import jax.numpy as jnp


def keys_of(query, key, value):
    """Keys and values with as many heads each, the queries standing for keys if `key` is None.

    query BTNH, key BSKH or None, value BSKV. Queries as keys have N heads, so the values are repeated.
    """
    if key is None:
        return query, jnp.repeat(value, query.shape[2] // value.shape[2], axis=2)
    return key, value
