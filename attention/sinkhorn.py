"""Attention inside blocks and to a learned sorting of them."""

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.random import threefry2x32_p

from attention.blocks import blocks_at_once
from attention.check import check_count, check_positive, check_softmax_fields
from attention.dropout import kept, query_words
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.logits import Logits
from attention.operands import blocks, wide

MOST_ITERATIONS = 2**12
UNREAL = -1e30  # the logit of what takes no part
# A sorted token that holds less than this of real ones is none; the mean over it would be noise.
LEAST_MASS = 1e-12


@dataclasses.dataclass(frozen=True)
class Sinkhorn(Attention):
    """Each block of queries attends to its own block of keys and to a mixture of all blocks, sorted to it.

    The sorted block i is sum_j R_ij (block j), token by token, of keys and of values; one softmax over both
    blocks (Tay et al. 2020, Sparse Sinkhorn Attention). R comes from logits by `num_iterations` turns, each
    dividing columns, then rows, by their sums: nearly a permutation, of rows that sum to 1. Logits are
    (w_j.relu(A sum of block i's queries) + noise) / sort_temperature with A and w_j learned; the noise is
    Gumbel's where an rng is given (training).

    Departures: the sort net reads a head's queries, where theirs reads the layer's input, of which these are
    a projection; it has no biases and no activation on top. Blocks of padding alone take part in neither
    sums. A sorted token is the mean over the real ones at its place in their blocks, and counts, under the
    softmax, as much of a key as R gives these. What comes sorted to its own block counts twice.

    There is no causal form: a column's sum holds what later blocks of queries ask for, and with it all that
    are divided by it. Dropout keeps or drops both tokens of a place. O(T (W + T / W)) time, W = block_size,
    and O(T + (T/W)^2) memory. Inputs longer than it was made for are refused. It is full attention if
    block_size >= T.
    """

    name: ClassVar[str] = "sinkhorn"

    block_size: int = 64
    num_iterations: int = 8
    sort_temperature: float = 0.75
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0

    def __post_init__(self):
        check_count(self, "block_size")
        check_count(self, "num_iterations", most=MOST_ITERATIONS)
        check_positive(self, "sort_temperature")
        check_softmax_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=False, two_sided=True, interior_padding=False, segments=False, explicit_positions=False,
            cross_attention=False, grouped_queries=True, value_width=True, shared_key=False, decoding=False,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=True, time="O(T (W + T / W))", memory="O(T + (T/W)^2)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit({"block_size": max(length, 1)}, "block_size >= T: one block, which is sorted to itself")

    def init(self, rng, *, num_heads, num_kv_heads, head_dim, model_dim, max_length):
        """`hidden` (N H H) and `by_block` (blocks of max_length, N H): logits of independent queries
        start with a variance of about 1."""
        first, second = jax.random.split(rng)
        width = max(head_dim, 1)  # as operands have it
        shape = (-(-max_length // self.block_size), num_heads, width)
        pooled = min(self.block_size, max(max_length, 1))
        return {
            "hidden": math.sqrt(2 / width) * jax.random.normal(first, (num_heads, width, width), jnp.float32),
            "by_block": jax.random.normal(second, shape, jnp.float32) / math.sqrt(width * pooled),
        }

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """The sort net, what is sorted, and two blocks for each query; these are computed again backward."""
        size = min(self.block_size, max(query_length, 1))
        number = -(-query_length // size)
        sort_net = number * head_dim * (head_dim + number)
        sorting = number**2 * size * (head_dim + value_dim + 1)
        near = number * size * 2 * size * (head_dim + value_dim)
        once, again = 2 * batch * num_heads * (sort_net + sorting), 2 * batch * num_heads * near
        return Flops(once + again, 2 * once + 3 * again)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        batch, length, num_heads, head_dim = query.shape
        size, num_kv_heads = min(self.block_size, length), key.shape[2]
        real_query, real_key = (
            blocks(jnp.broadcast_to(True if x is None else x, (batch, length)), size)
            for x in (mask.query_valid, mask.key_valid)
        )
        query, key, value = (blocks(x, size) for x in (query, key, value))
        noise = 0.0 if rng is None else _gumbel(jax.random.fold_in(rng, 2), batch, num_heads, query.shape[1])
        order = _sinkhorn(
            (self._sort_logits(wide(query).sum(2), params) + noise) / self.sort_temperature,
            (real_query.any(2)[:, :, None] & real_key.any(2)[:, None, :])[:, None], self.num_iterations,
        )  # fmt: skip
        order = order.reshape(batch, num_kv_heads, -1, *order.shape[2:])
        query = query.reshape(*query.shape[:3], num_kv_heads, -1, head_dim)
        output = self._near(
            query, (key, value, real_key), _sorted(order, key, value, real_key), self._words(rng, query),
            Logits.of(self, head_dim),
        )  # fmt: skip
        output = jnp.where(real_query[..., None, None, None], output, 0)
        return output.reshape(batch, -1, num_heads, output.shape[-1])[:, :length]

    def _sort_logits(self, pooled, params) -> Any:
        """Of sums of blocks B C N H: B N C C, a row for each block of queries."""
        hidden, by_block = (params[name].astype(pooled.dtype) for name in ("hidden", "by_block"))
        number = pooled.shape[1]
        if by_block.ndim != 3 or len(by_block) < number:
            raise ValueError(
                f"sinkhorn: params['by_block'] must have 3 axes and at least {number} blocks of "
                f"{self.block_size}, got shape {by_block.shape}; `init` makes it for up to max_length"
            )
        hidden = jax.nn.relu(jnp.einsum("BCNH,NHJ->BCNJ", pooled, hidden))
        return jnp.einsum("BCNJ,DNJ->BNCD", hidden, by_block[:number])

    def _words(self, rng, query) -> Any:
        """What decides the dropout of each query, two of B C K G W, and of each place, 1 C W; None: none."""
        if rng is None or self.dropout_rate == 0:
            return None
        batch, number, size, num_kv_heads, group = query.shape[:5]
        words = query_words(rng, batch, num_kv_heads * group, number * size)
        shape = (batch, num_kv_heads, group, number, size)
        first, second = (jnp.moveaxis(x.reshape(shape), 3, 1) for x in words)
        return first, second, jnp.arange(number * size).reshape(1, number, size)

    def _near(self, query, own, other, words, logits: Logits) -> Any:
        """Each block of queries B C W K G H with its own block and the sorted one: B C W K G V, by turns."""
        batch, number, size, num_kv_heads, group = query.shape[:5]

        @jax.checkpoint
        def turn(blocks):
            query, own, other, words = blocks
            share = None
            if words is not None:
                first, second = (x[..., None] for x in words[:2])
                share = kept(first, second, words[2][:, None, None, None], self.dropout_rate)
                share = jnp.concatenate([share, share], -1) / (1 - self.dropout_rate)
            return _of_block(query, own, other, share, logits)

        together = jax.tree.map(lambda x: x.swapaxes(0, 1), (query, own, other, words))
        at_once = blocks_at_once(batch * num_kv_heads * group * size * 2 * size)
        return lax.map(turn, together, batch_size=min(at_once, number)).swapaxes(0, 1)


def _gumbel(rng, batch: int, num_heads: int, number: int) -> Any:
    """B N C C, each a function of rng and of its four indices alone: padding draws no other."""
    row, head, i, j = (
        jnp.arange(x, dtype=jnp.uint32).reshape([-1 if axis == a else 1 for a in range(4)])
        for axis, x in enumerate((batch, num_heads, number, number))
    )
    shape = (batch, num_heads, number, number)
    state = jax.random.bits(rng, (2,), jnp.uint32)
    for counter in ((row, head), (i, j)):
        words = (jnp.broadcast_to(x, shape) for x in (*state, *counter))
        state = threefry2x32_p.bind(*words)
    uniform = ((state[0] >> 9).astype(jnp.float32) + 0.5) * 2.0**-23
    return -jnp.log(-jnp.log(uniform))


def _sinkhorn(logits, takes_part, iterations: int) -> Any:
    """exp(logits_ij - a_i - b_j), B N C C, so that rows sum to 1 and columns nearly do; 0 elsewhere.

    Only a and b are kept for the backward, which computes each turn again.
    """

    def total(reduced, axis: int):
        return jax.nn.logsumexp(jnp.where(takes_part, reduced, UNREAL), axis=axis, keepdims=True)

    @jax.checkpoint
    def turn(of_rows, _):
        of_columns = total(logits - of_rows, -2)
        return total(logits - of_columns, -1), of_columns

    of_rows, of_columns = lax.scan(turn, jnp.zeros_like(logits[..., :1]), length=iterations)
    reduced = jnp.where(takes_part, logits - of_rows - of_columns[-1], UNREAL)
    return jnp.where(takes_part, jnp.exp(reduced), 0)


def _sorted(order, key, value, real) -> tuple[Any, Any, Any]:
    """Mean keys B C W K G H, sums of values B C W K G V and how much of real tokens is in each, B C W K G."""
    there = jnp.broadcast_to(real[..., None, None], (*key.shape[:4], 1))
    tokens = jnp.concatenate([wide(key), wide(value), there.astype(order.dtype)], -1)
    sums = jnp.einsum("BKGCD,BDWKH->BCWKGH", order, tokens)
    keys, values, mass = sums[..., : key.shape[4]], sums[..., key.shape[4] : -1], sums[..., -1]
    mass = jnp.where(mass > LEAST_MASS, mass, 0)
    keys = keys / jnp.maximum(mass, LEAST_MASS)[..., None]
    return keys.astype(key.dtype), jnp.where(mass[..., None] > 0, values, 0).astype(value.dtype), mass


def _of_block(query, own, other, kept_share, logits: Logits) -> Any:
    """Queries B W K G H of a block with its keys and those sorted to it, under one softmax: B W K G V."""
    (key, value, real), (keys, values, mass) = own, other
    type_of = jnp.promote_types(query.dtype, jnp.float32)
    product = functools.partial(jnp.einsum, preferred_element_type=type_of)
    scores = jnp.concatenate(
        [product("BWKGH,BXKH->BKGWX", query, key), product("BWKGH,BXKGH->BKGWX", query, keys)], -1
    )
    scores = logits.cap(scores * logits.scale)[0]
    there = jnp.moveaxis(mass, 1, -1)  # B K G X
    there = jnp.concatenate([jnp.broadcast_to(real[:, None, None], there.shape), there], -1)[..., None, :]
    # What is subtracted cancels. Values are sums already, so that only the total has to count what is there.
    counted = jnp.where(there > 0, scores + jnp.log(jnp.where(there > 0, there, 1)), -jnp.inf)
    greatest = lax.stop_gradient(counted.max(-1, keepdims=True))
    sees = greatest > -jnp.inf
    share = jnp.exp(jnp.where(there > 0, scores - jnp.where(sees, greatest, 0), UNREAL))
    share = share / jnp.where(sees, (share * there).sum(-1, keepdims=True), 1)
    if kept_share is not None:
        share = share * kept_share
    size = key.shape[1]
    return product("BKGWX,BXKV->BWKGV", share[..., :size].astype(value.dtype), value) + product(
        "BKGWX,BXKGV->BWKGV", share[..., size:].astype(value.dtype), values
    )
