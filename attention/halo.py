"""Keys and values from neighbouring devices, for variants that look at near keys only."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attention.dropout import Dropout
from attention.mask import Mask


def with_halo(
    key, value, mask: Mask, dropout: Dropout | None, before: int, after: int, axis_name: str
) -> tuple[Any, Any, Mask, Dropout | None, int]:
    """What a device's queries need: its own keys, `before` ones from the left and `after` from the right.

    To be called inside `shard_map`, with shares of equal length in order along `axis_name`. Takes and gives
    key B S K H, value B S K V, the mask and the dropout of these keys; gives too how many are from the right.
    A halo longer than a share comes from several devices, one that is negative (no query sees its own token)
    from none. Where the sequence has ended, keys are invalid.
    Gradients go back the same way.
    """
    length, others = key.shape[1], lax.axis_size(axis_name) - 1
    left, right = (max(0, min(count, others * length)) for count in (before, after))
    valid = jnp.ones((1, length), bool) if mask.key_valid is None else mask.key_valid
    tokens = {"key": key, "value": value, "valid": valid}
    if mask.key_segments is not None:
        tokens["segments"] = mask.key_segments
    wide = jax.tree.map(lambda x: _widened(x, left, right, axis_name, axis=1), tokens)
    if dropout is not None:
        index = _widened(dropout.key_index, left, right, axis_name, axis=2)
        dropout = dropout._replace(key_index=index)
    mask = dataclasses.replace(mask, key_valid=wide["valid"], key_segments=wide.get("segments"))
    return wide["key"], wide["value"], mask, dropout, right


def _widened(x, left: int, right: int, axis_name: str, axis: int):
    pieces = [*_from_side(x, left, 1, axis_name, axis)[::-1], x, *_from_side(x, right, -1, axis_name, axis)]
    return jnp.concatenate(pieces, axis)


def _from_side(x, count: int, direction: int, axis_name: str, axis: int) -> list[Any]:
    """`count` tokens from the devices to the left (direction 1) or to the right (-1), nearest first."""
    devices, length, pieces = lax.axis_size(axis_name), x.shape[axis], []
    for hop in range(1, -(-count // length) + 1):
        size = min(length, count - (hop - 1) * length)
        start = length - size if direction == 1 else 0
        piece = lax.slice_in_dim(x, start, start + size, axis=axis)
        pairs = [(i, i + direction * hop) for i in range(devices) if 0 <= i + direction * hop < devices]
        pieces.append(_sent(piece, axis_name, pairs))
    return pieces


def _sent(x, axis_name: str, pairs: list[tuple[int, int]]):
    """Whoever is sent nothing has zeros: False, if they are bools."""
    if x.dtype == jnp.bool_:
        return lax.ppermute(x.astype(jnp.int8), axis_name, pairs) > 0
    return lax.ppermute(x, axis_name, pairs)
