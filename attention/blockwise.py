"""Softmax attention tile by tile: online softmax forward, recomputation backward, O(T + S) memory.

The forward keeps a running maximum and sum (Milakov and Gimelshein 2018; Rabe and Staats 2021); the backward
recomputes each tile from the log-sum-exp (Dao et al. 2022) and takes a cotangent for it. What a query may
see is not decided here: variants pass the `visible` function, arrays for its two sides, and the tiles.

Tiles are B K S G T, keys before queries: then none of the seven products has to turn a tile first, which a
CPU does slowly.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

from attention import blocks
from attention.dropout import Dropout, drop
from attention.logits import Logits
from attention.tiles import Tiles
from attention.visibility import NOWHERE


class Sides(NamedTuple):
    """Arrays that travel with queries and with keys: b k ... tokens, where b is B or 1 and k is K or 1.

    Key arrays are int32 and padded with NOWHERE, which `visible` must take for "nobody sees it".
    """

    query: Any
    key: Any
    key_bias: Any = None  # added to the logits, b k S, constant
    dropout: Dropout | None = None


@dataclasses.dataclass(frozen=True)
class _Program:
    """What is static: the tile's arithmetic and the shape of the loops."""

    visible: Callable[[Any, Any], Any]
    logits: Logits
    dropout_rate: float
    dtype: Any
    query_block: int
    key_block: int
    loops: bool
    consecutive: bool
    some_unmasked: bool
    some_masked: bool
    slides: bool
    by_token: bool  # blocks are read from arrays that lie in the order of tokens, and not of heads


class _Schedule(NamedTuple):
    starts: Any
    num_unmasked: Any
    num_tiles: Any


def program(
    tiles: Tiles, visible: Callable[[Any, Any], Any], logits: Logits, dropout_rate: float, dtype: Any
) -> _Program:
    """What of a call is static; `dtype` is the output's."""
    return _Program(
        visible, logits, dropout_rate, jnp.dtype(dtype), tiles.query_block, tiles.key_block,
        tiles.loops, tiles.consecutive, tiles.some_unmasked, tiles.some_masked, tiles.slides,
        blocks.platform() == "gpu",
    )  # fmt: skip


def schedule(tiles: Tiles) -> _Schedule:
    """What of the tiles may be known only when run."""
    return _Schedule(jnp.asarray(tiles.starts), jnp.asarray(tiles.num_unmasked), jnp.asarray(tiles.num_tiles))


def blockwise(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K V"],
    *,
    tiles: Tiles,
    visible: Callable[[Any, Any], Any],
    sides: Sides,
    logits: Logits,
    dropout_rate: float = 0.0,
    dtype: Any = None,
) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
    """Output in `dtype` (None: float32 or wider) and log-sum-exp (before dropout), in float32 or wider.

    What is merged with other parts is wanted wide; what is not takes half the memory as it is asked for.

    `visible(query_side, key_side)` gives the mask of a tile, broadcastable to (B, K, W, W'), from blocks of
    the arrays in `sides`. It must be a module-level function: it is part of what is compiled.

    Differentiated by its own backward: jax refuses forward mode through it (jvp, linearize, jacfwd), but not
    over its gradient (hessian); a gradient of the gradient it refuses unless each block has one tile.
    """
    padded = tiles.starts.shape[0] * tiles.query_block, max(tiles.key_length, key.shape[1])
    static = program(tiles, visible, logits, dropout_rate, dtype or wide_dtype(query))
    both: Any = _attend(static, *laid_out(query, key, value, sides, padded), schedule(tiles))
    output, lse = both
    return put_back(output, lse, query.shape)


def laid_out(query, key, value, sides: Sides, padded: tuple[int, int]):
    """query B K G T H, key B K S H, value B K S V and the sides, for `padded` queries and keys."""
    batch, _, _, head_dim = query.shape
    query = query.reshape(batch, query.shape[1], key.shape[2], -1, head_dim).transpose(0, 2, 3, 1, 4)
    key, value = (_pad(x.transpose(0, 2, 1, 3), padded[1], axis=2) for x in (key, value))
    return _pad(query, padded[0], axis=3), key, value, _pad_sides(sides, *padded)


def put_back(output, lse, query_shape: tuple[int, ...]) -> tuple[Any, Any]:
    """B K G T V and B K G T as B T N V and B T N, for a query of that shape."""
    batch, length, num_heads, _ = query_shape
    output = output.transpose(0, 3, 1, 2, 4).reshape(batch, output.shape[3], num_heads, -1)
    lse = lse.transpose(0, 3, 1, 2).reshape(batch, lse.shape[3], num_heads)
    return output[:, :length], lse[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(program: _Program, query, key, value, sides: Sides, schedule: _Schedule):
    return forward(program, query, key, value, sides, schedule)


def _attend_forward(program: _Program, *arrays):
    output, lse = forward(program, *arrays)
    return (output, lse), (*arrays, output, lse)


def _attend_backward(program: _Program, residuals, cotangents):
    return *gradients(program, residuals, cotangents, residuals[0].dtype), None, None


_attend.defvjp(_attend_forward, _attend_backward)


def forward(program: _Program, query, key, value, sides: Sides, schedule: _Schedule):
    """query B K G T H, key B K S H, value B K S V -> B K G T V, in the program's dtype, and B K G T."""
    wide = wide_dtype(query)

    def block(c):
        index = c * program.query_block
        q = _turned(_read(program, query, index, program.query_block, 3))
        query_side = _take_last((sides.query, _query_dropout(sides)), index, program.query_block)

        def visit(masked, m, carry):
            greatest, total, output = carry
            start = start_of(program, schedule, c, m)
            k, v = (_read(program, x, start, program.key_block, 2) for x in (key, value))
            key_side = _take_last((sides.key, sides.key_bias, _key_dropout(sides)), start, program.key_block)
            x, _ = _tile_logits(program, masked, q, k, query_side, key_side)
            new = jnp.maximum(greatest, x.max(2))
            base = jnp.where(new == -jnp.inf, 0, new)
            weight, decay = jnp.exp(x - base[:, :, None]), jnp.exp(greatest - base)
            total = total * decay + weight.sum(2)
            weight = _drop(program, sides, query_side, key_side, weight)
            update = _dot("BKVS,BKSGT->BKVGT", _turned(v), weight.astype(v.dtype), wide)
            return new, total, output * decay[:, :, None] + update

        rows = (*q.shape[:2], *q.shape[3:])
        carry = (
            jnp.full(rows, -jnp.inf, wide),
            jnp.zeros(rows, wide),
            jnp.zeros((*rows[:2], value.shape[3], *rows[2:]), wide),
        )
        greatest, total, output = visit_tiles(program, schedule, c, visit, carry)
        sees = total > 0
        total = jnp.where(sees, total, 1)
        output = (output / total[:, :, None]).astype(program.dtype)
        return _by_token(output), jnp.where(sees, greatest + jnp.log(total), -jnp.inf)

    parts = lax.map(block, jnp.arange(schedule.starts.shape[0]))
    return _joined(parts[0]), _join(parts[1], axis=3)


def gradients(program: _Program, residuals, cotangents, dtype):
    """Of query, key and value, in this dtype. `residuals` end in the output and the log-sum-exp.

    If these are of more keys than are given here, so is the softmax: the gradients are its own.
    """
    query, key, value, sides, schedule, output, lse = residuals
    d_output, d_lse = cotangents
    wide = wide_dtype(query)
    safe_lse, offset = _of_rows(output, lse, d_output.astype(wide), d_lse)
    scale = program.logits.scale
    # Sums of a slab's keys alone: those of all would take as much again as what they are sums of.
    slides = program.slides and jnp.dtype(dtype) != wide

    def block(carry, c):
        sums, done, origin = carry
        if slides:
            sums, done, origin = _slid(sums, done, origin, schedule.starts[c, 0])
        index = c * program.query_block
        q, do, row_lse, row_offset = (
            _read(program, x, index, program.query_block, 3) for x in (query, d_output, safe_lse, offset)
        )
        do = do.astype(value.dtype)
        q_turned, do_turned = _turned(q), _turned(do)
        query_side = _take_last((sides.query, _query_dropout(sides)), index, program.query_block)

        def visit(masked, m, carry):
            d_query, d_key, d_value = carry
            start = start_of(program, schedule, c, m)
            k, v = (_read(program, x, start, program.key_block, 2) for x in (key, value))
            key_side = _take_last((sides.key, sides.key_bias, _key_dropout(sides)), start, program.key_block)
            x, slope = _tile_logits(program, masked, q_turned, k, query_side, key_side)
            weight = jnp.exp(x - row_lse[:, :, None])
            d_weight = _dot("BKSV,BKVGT->BKSGT", v, do_turned, wide)
            d_weight = _drop(program, sides, query_side, key_side, d_weight)
            dropped = _drop(program, sides, query_side, key_side, weight).astype(v.dtype)
            d_value = _add(d_value, _dot("BKSGT,BKGTV->BKSV", dropped, do, wide), start - origin)
            d_logit = (weight * (d_weight - row_offset[:, :, None]) * slope * scale).astype(q.dtype)
            d_key = _add(d_key, _dot("BKSGT,BKGTH->BKSH", d_logit, q, wide), start - origin)
            return d_query + _dot("BKHS,BKSGT->BKHGT", _turned(k), d_logit, wide), d_key, d_value

        begin = jnp.zeros(q_turned.shape, wide), *sums
        d_query, *sums = visit_tiles(program, schedule, c, visit, begin)
        return (tuple(sums), done, origin), _by_token(d_query.astype(dtype))

    begin = _no_sums(program, schedule, slides, key, value, dtype)
    (sums, done, origin), parts = lax.scan(block, begin, jnp.arange(schedule.starts.shape[0]))
    if slides:
        sums = _slid(sums, done, origin, origin)[1]
    return _joined(parts), *(x.astype(dtype) for x in sums)


def _of_rows(output, lse, d_output, d_lse):
    """The log-sum-exp that recomputes each row's weights, and what is taken from their gradients."""
    sees = lse > -jnp.inf
    # A product and no sum over one: see `merge`.
    spread = jnp.einsum("BKGTV,BKGTV->BKGT", d_output, output, precision=lax.Precision.HIGHEST)
    # Each logit's gradient is weight * (d_weight - offset), the softmax's and the log-sum-exp's together.
    offset = jnp.where(sees, spread - d_lse, 0)
    return jnp.where(sees, lse, jnp.inf), offset


def _no_sums(program: _Program, schedule: _Schedule, slides: bool, key, value, dtype):
    """Before the first block: sums for key and value, gradients that are done, where the sums begin."""
    length = program.key_block if slides else key.shape[2]
    sums = tuple(jnp.zeros((*x.shape[:2], length, x.shape[3]), wide_dtype(x)) for x in (key, value))
    if not slides:
        return sums, (), 0
    return sums, tuple(jnp.zeros(x.shape, dtype) for x in (key, value)), schedule.starts[0, 0]


def _slid(sums, done, before, start):
    """The sums of a slab that begins at `before` as those of one that begins at `start`, and `start`.

    All of them are put into `done`, where what is not the last word is written over by the slabs after.
    """
    size = sums[0].shape[2]
    done = tuple(
        lax.dynamic_update_slice_in_dim(d, x.astype(d.dtype), before, 2)
        for d, x in zip(done, sums, strict=True)
    )
    return tuple(_take(_pad(x, 2 * size, axis=2), start - before, size, 2) for x in sums), done, start


def start_of(program: _Program, schedule: _Schedule, c, m):
    """The first key of tile m of block c."""
    return schedule.starts[c, 0] + m * program.key_block if program.consecutive else schedule.starts[c, m]


def visit_tiles(program: _Program, schedule: _Schedule, c, visit, carry):
    """Run `visit(masked, m, carry)` over the tiles of block c, those without a mask first."""
    if not program.loops:
        return visit(program.some_masked, 0, carry)
    first_masked, end = schedule.num_unmasked[c], schedule.num_tiles[c]
    if program.some_unmasked:
        carry = lax.fori_loop(0, first_masked, functools.partial(visit, False), carry)
    if program.some_masked:
        carry = lax.fori_loop(first_masked, end, functools.partial(visit, True), carry)
    return carry


def wide_dtype(x):
    """That of sums over an array's values: float32, or its own if that is wider."""
    return jnp.promote_types(x.dtype, jnp.float32)


def _tile_logits(program: _Program, masked: bool, q, k, query_side, key_side):
    """Logits (B K S G T) with -inf where not visible, and their slope against scale * q.k."""
    wide = wide_dtype(q)
    x, slope = program.logits.cap(_dot("BKSH,BKHGT->BKSGT", k, q, wide) * program.logits.scale)
    if key_side[1] is not None:
        x = x + key_side[1][..., None, None]
    if masked:
        seen = program.visible(query_side[0], key_side[0]).swapaxes(-1, -2)
        x = jnp.where(seen[:, :, :, None], x, -jnp.inf)
    return x, slope


def _drop(program: _Program, sides: Sides, query_side, key_side, weight):
    """`drop`, whose bits are laid out B K G T S. What is turned here is fused, and never written out."""
    if sides.dropout is None:
        return weight
    dropout = Dropout(query_side[1], key_side[2])
    return jnp.moveaxis(drop(jnp.moveaxis(weight, 2, -1), dropout, program.dropout_rate), -1, 2)


def _query_dropout(sides: Sides):
    return None if sides.dropout is None else sides.dropout.words


def _key_dropout(sides: Sides):
    return None if sides.dropout is None else sides.dropout.key_index


def _pad_sides(sides: Sides, query_length: int, key_length: int) -> Sides:
    """Query arrays repeat their last token, which leaves what blocks have in common as it is."""

    def queries(tree):
        return jax.tree.map(lambda x: _pad(x, query_length, axis=-1, mode="edge"), tree)

    def keys(tree, fill):
        return jax.tree.map(lambda x: _pad(x, key_length, axis=-1, constant_values=fill), tree)

    dropout = sides.dropout
    if dropout is not None:
        dropout = Dropout(queries(dropout.words), keys(dropout.key_index, 0))
    return Sides(queries(sides.query), keys(sides.key, NOWHERE), keys(sides.key_bias, 0), dropout)


def _pad(x, length: int, axis: int, **how):
    width = [(0, 0)] * x.ndim
    width[axis] = (0, length - x.shape[axis])
    return jnp.pad(x, width, **how)


def _turned(x):
    """B K ... H -> B K H ..., and written out so.

    XLA would fold it into the product that follows, and turns two bfloat16 there on a CPU into an error.
    """
    return lax.optimization_barrier(jnp.moveaxis(x, -1, 2))


def _read(program: _Program, x, start, size: int, axis: int):
    """A block of queries or keys, which are on this axis.

    Left to itself XLA lays whole arrays out as the products want tiles, heads first, and copies them for
    it. On a GPU tiles are asked for in the order of tokens, in which arrays come, so that no copy is made;
    on a TPU that would take more memory.
    """
    block = _take(x, start, size, axis)
    if not program.by_token:
        return block
    return with_layout_constraint(block, Layout((0, axis, *(a for a in range(1, x.ndim) if a != axis))))


def _take(x, start, size: int, axis: int):
    return lax.dynamic_slice_in_dim(x, start, size, axis)


def _take_last(tree, start, size: int):
    return jax.tree.map(lambda x: _take(x, start, size, x.ndim - 1), tree)


def _add(total, update, start):
    """Add `update` to keys from `start` on, in place."""
    size = update.shape[2]
    return lax.dynamic_update_slice_in_dim(total, _take(total, start, size, 2) + update, start, 2)


def _by_token(x):
    """B K H G W -> B W K G H: a block in the order in which all are wanted in the end."""
    return x.transpose(0, 4, 1, 3, 2)


def _joined(blocks):
    """C B W K G H -> B K G T H."""
    return _join(blocks, axis=1).transpose(0, 2, 3, 1, 4)


def _join(blocks, axis: int):
    """C ... W ... -> ... T ...: put the blocks of queries back in a row."""
    moved = jnp.moveaxis(blocks, 0, axis)
    return moved.reshape(*moved.shape[:axis], -1, *moved.shape[axis + 2 :])


def _dot(subscripts: str, left, right, dtype):
    return jnp.einsum(subscripts, left, right, preferred_element_type=dtype)
