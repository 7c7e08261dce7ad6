"""Who may see whom, as one interval of key positions for each query: causality, windows, padding, pools."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from attention.mask import Mask

# Positions are below FAR in magnitude. A key that nobody may see stands at NOWHERE; a query that sees
# nothing has the interval (FAR, -FAR), which is neutral in a minimum of `first` and a maximum of `last`.
FAR = 2**30
NOWHERE = 2**31 - 1


class Interval(NamedTuple):
    """The key positions that each query sees: first <= position <= last, outside the hole, same segment.

    Arrays are int32, tokens on the last axis, the axes before it (batch, or batch and heads) broadcast.
    """

    first: Any
    last: Any
    hole_first: Any = None
    hole_last: Any = None
    segment: Any = None


class Placed(NamedTuple):
    """The position of each key and its segment (int32, tokens on the last axis)."""

    position: Any
    segment: Any = None


def visible(query: Interval, key: Placed) -> Bool[Array, "... T S"]:
    """True where the query may attend to the key."""
    position = key.position[..., None, :]
    seen = (query.first[..., :, None] <= position) & (position <= query.last[..., :, None])
    if query.hole_first is not None:
        seen &= (position < query.hole_first[..., :, None]) | (position > query.hole_last[..., :, None])
    if query.segment is not None:
        seen &= query.segment[..., :, None] == key.segment[..., None, :]
    return seen


def default_band(
    query_length: int, key_length: int, before: int | None, after: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """First and last key index (T each, first > last where there is none) seen at default positions.

    A query sees `before` positions back and `after` ahead; None is all of them.
    """
    position = np.arange(query_length, dtype=np.int64) + (key_length - query_length)
    first = np.zeros_like(position) if before is None else np.maximum(position - before, 0)
    last = np.full_like(position, key_length - 1)
    if after is not None:
        last = np.minimum(position + after, last)
    return first.astype(np.int32), last.astype(np.int32)


def of_real_queries(mask: Mask, first, last) -> tuple[Any, Any]:
    """What queries see from `first` to `last` (b 1 T each), nothing where a query is padding."""
    if mask.query_valid is not None:
        valid = mask.query_valid[:, None]
        first, last = jnp.where(valid, first, FAR), jnp.where(valid, last, -FAR)
    return first, last


def from_mask(
    mask: Mask, query_length: int, key_length: int, before: int | None, after: int | None
) -> tuple[Interval, Placed]:
    """The mask, and a band of `before` positions back and `after` ahead (None: all), as intervals.

    Arrays are b 1 T and b 1 S with b either B or 1: one axis for heads.
    """
    if mask.query_positions is None:
        first, last = (
            jnp.asarray(x)[None, None] for x in default_band(query_length, key_length, before, after)
        )
    else:
        position = mask.query_positions.astype(jnp.int32)[:, None]
        first = jnp.full_like(position, -FAR) if before is None else position - before
        last = jnp.full_like(position, FAR) if after is None else position + after
    first, last = of_real_queries(mask, first, last)
    position = mask.positions(query_length, key_length)[1][:, None]
    if mask.key_valid is not None:
        position = jnp.where(mask.key_valid[:, None], position, NOWHERE)
    query_segments, key_segments = (
        None if x is None else x.astype(jnp.int32)[:, None] for x in (mask.query_segments, mask.key_segments)
    )
    return Interval(first, last, segment=query_segments), Placed(position, key_segments)
