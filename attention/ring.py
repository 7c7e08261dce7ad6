"""Exact attention over a sequence that several devices share: keys and values travel around a ring.

Every device keeps its queries. In as many steps as there are devices it attends to the keys that it holds,
merges what it finds by the log-sum-exp, and hands the keys on (Liu et al. 2023, Ring Attention). The backward
goes around once more, and the gradients of keys and values travel with them. O(T/n) memory on n devices.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from attention import blockwise
from attention.blockwise import Sides
from attention.dropout import Dropout
from attention.logits import Logits
from attention.mask import Mask
from attention.merge import merge
from attention.tiles import refine, static_tiles
from attention.visibility import from_mask, visible


@dataclasses.dataclass(frozen=True)
class _Ring:
    """What is static of a call."""

    axis_name: str
    query_block: int
    key_block: int
    logits: Logits
    dropout_rate: float


def ring_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K V"],
    mask: Mask,
    *,
    axis_name: str,
    query_block: int,
    key_block: int,
    logits: Logits,
    dropout_rate: float,
    dropout: Dropout | None,
) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
    """Output and log-sum-exp, float32 or wider, of a device's queries over the keys of all devices.

    To be called inside `shard_map`, with shares of equal length in order along `axis_name`. A causal mask
    leaves the early shares little to do: each device then works on one early and one late half share, so
    that all have the same work in each step, but for tiles that reach over both where no number of tiles is
    as long as a half.
    """
    length, key_length = query.shape[1], key.shape[1]
    mask = _placed(mask, length, key_length, axis_name)
    query_side, key_side = from_mask(mask, length, key_length, None, 0 if mask.causal else None)
    sides = Sides(query_side, key_side, dropout=dropout)
    halves = mask.causal and length == key_length and length % 2 == 0
    if halves:
        query, key, value = (_dealt(x, 1, axis_name) for x in (query, key, value))
        sides = jax.tree.map(lambda x: _dealt(x, x.ndim - 1, axis_name), sides)
        length, key_length = length // 2, key_length // 2
    query_block, key_block = min(query_block, length), min(key_block, key_length)
    ring = _Ring(axis_name, query_block, key_block, logits, dropout_rate)
    padded = _up(query.shape[1], query_block), _up(key.shape[1], key_block)
    both: Any = _attend(ring, *blockwise.laid_out(query, key, value, sides, padded))
    output, lse = both
    output, lse = blockwise.put_back(output, lse, query.shape)
    return (_collected(output, axis_name), _collected(lse, axis_name)) if halves else (output, lse)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(ring: _Ring, query, key, value, sides: Sides):
    """query B K G T H, key B K S H, value B K S V -> B K G T V and B K G T."""

    def step(carry, _):
        found, held = carry
        arriving = _handed_on(ring, held)  # asked for before the work, to come meanwhile
        part = blockwise.forward(*_with_keys(ring, query, sides, held))
        return (merge([found, part]), arriving), None

    wide = blockwise.wide_dtype(query)
    nothing = (
        jnp.zeros((*query.shape[:-1], value.shape[-1]), wide),
        jnp.full(query.shape[:-1], -jnp.inf, wide),
    )
    begin = nothing, (key, value, _of_keys(sides))
    return lax.scan(step, begin, None, lax.axis_size(ring.axis_name))[0][0]


def _attend_forward(ring: _Ring, query, key, value, sides: Sides):
    found: Any = _attend(ring, query, key, value, sides)
    return found, (query, key, value, sides, *found)


def _attend_backward(ring: _Ring, residuals, cotangents):
    query, key, value, sides, output, lse = residuals
    wide = blockwise.wide_dtype(query)

    def step(carry, _):
        (d_query, *d_held), held = carry
        arriving = _handed_on(ring, held)
        program, *arrays = _with_keys(ring, query, sides, held)
        more, *d_more = blockwise.gradients(program, (*arrays, output, lse), cotangents, wide)
        d_held = _handed_on(ring, jax.tree.map(jnp.add, d_held, d_more))
        return ((d_query + more, *d_held), arriving), None

    zeros = tuple(jnp.zeros(x.shape, wide) for x in (query, key, value))
    begin = zeros, (key, value, _of_keys(sides))
    found = lax.scan(step, begin, None, lax.axis_size(ring.axis_name))[0][0]
    return *(x.astype(query.dtype) for x in found), None


_attend.defvjp(_attend_forward, _attend_backward)


def _of_keys(sides: Sides) -> tuple[Any, Any]:
    """What of the sides travels with the keys."""
    return sides.key, sides.dropout and sides.dropout.key_index


def _with_keys(ring: _Ring, query, sides: Sides, held) -> tuple[Any, ...]:
    """The arguments of the blockwise functions: a device's queries with the keys that it holds."""
    key, value, (key_side, key_index) = held
    dropout = sides.dropout and sides.dropout._replace(key_index=key_index)
    sides = Sides(sides.query, key_side, dropout=dropout)
    every = np.zeros(query.shape[3], np.int32), np.full(query.shape[3], key.shape[2] - 1, np.int32)
    wide = blockwise.wide_dtype(query)
    tiles = refine(static_tiles(*every, ring.query_block, ring.key_block), sides.query, key_side)
    program = blockwise.program(tiles, visible, ring.logits, ring.dropout_rate, wide)
    return program, query, key, value, sides, blockwise.schedule(tiles)


def _handed_on(ring: _Ring, held):
    devices = lax.axis_size(ring.axis_name)
    around = [(i, (i + 1) % devices) for i in range(devices)]
    return jax.tree.map(lambda x: lax.ppermute(x, ring.axis_name, around), held)


def _placed(mask: Mask, length: int, key_length: int, axis_name: str) -> Mask:
    """The mask with the positions that tokens have in the whole sequence."""
    devices, index = lax.axis_size(axis_name), lax.axis_index(axis_name)
    query_positions, key_positions = mask.query_positions, mask.key_positions
    if query_positions is None:
        last = devices * (key_length - length)  # of the whole sequence, S - T
        query_positions = jnp.arange(length, dtype=jnp.int32)[None] + index * length + last
    if key_positions is None:
        key_positions = jnp.arange(key_length, dtype=jnp.int32)[None] + index * key_length
    return dataclasses.replace(mask, query_positions=query_positions, key_positions=key_positions)


def _dealt(x, axis: int, axis_name: str):
    """Of 2 n half shares in order, device d gets the d-th from the start and the d-th from the end."""
    even, odd = _swaps(lax.axis_size(axis_name))
    first, second = jnp.split(x, 2, axis)
    first, second = lax.ppermute(first, axis_name, even), lax.ppermute(second, axis_name, odd)
    early, late = _crossed(first, second, axis_name)
    return jnp.concatenate([early, late], axis)


def _collected(x, axis_name: str):
    """What `_dealt` moved, tokens on axis 1, back in order."""
    even, odd = ([(end, start) for start, end in pairs] for pairs in _swaps(lax.axis_size(axis_name)))
    early, late = jnp.split(x, 2, 1)
    first, second = _crossed(early, late, axis_name)
    first, second = lax.ppermute(first, axis_name, even), lax.ppermute(second, axis_name, odd)
    return jnp.concatenate([first, second], 1)


def _crossed(one, other, axis_name: str):
    """Half shares of even number on even devices are early ones, on odd devices late ones."""
    is_even = lax.axis_index(axis_name) % 2 == 0
    return jnp.where(is_even, one, other), jnp.where(is_even, other, one)


def _swaps(devices: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(from, to) for the half shares of even number and for those of odd number."""

    def place(half: int) -> int:
        return min(half, 2 * devices - 1 - half)

    return [(i, place(2 * i)) for i in range(devices)], [(i, place(2 * i + 1)) for i in range(devices)]


def _up(length: int, block: int) -> int:
    return -(-length // block) * block
