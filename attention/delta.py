"""The gated delta rule: a state that overwrites what it holds for a key."""

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from attention.check import check_count, check_field, check_positive
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.mask import Mask
from attention.operands import blocks, repeated, unit, wide, zeroed
from attention.state import DEFAULT_BLOCK, causal_share, faded, forgetting, within


@dataclasses.dataclass(frozen=True)
class Delta(Attention):
    """Each token takes back what the state answers to its key and writes its own value there.

    output_t = q_t.S_t, S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T (Yang et al. 2025, eq. 10), q
    and k normalised, b_t = sigmoid(gate 1) how strongly it writes, a_t = sigmoid(gate 0)^(1 /
    gate_temperature) how much is kept. `gated=False` has a_t = 1 and one gate, b_t: the delta rule (Schlag
    et al. 2021; Yang et al. 2024). Within a block the writes are a triangular system (the WY form of both
    papers), inverted at once. Padding writes nothing and keeps all.

    Outputs are sums, and the layer normalises each head's. Departures: a_t has the form it has in gated
    linear attention here, and no bias or rate of its own; no convolution and no output gate, which the
    model may add for all variants alike. Causal only.

    O(T (W + H) (W + V)) time by blocks of W queries, O(T) memory, a state of H V numbers. It never is full
    attention.
    """

    name: ClassVar[str] = "delta"
    unnormalised: ClassVar[bool] = True

    gated: bool = True
    gate_temperature: float = 16.0
    query_block: int | None = None  # None: 64

    def __post_init__(self):
        check_field(self, "gated", "True or False", isinstance(self.gated, bool))
        check_positive(self, "gate_temperature")
        check_count(self, "query_block", optional=True)

    @property
    def num_gates(self) -> int:
        return 2 if self.gated else 1

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=False, interior_padding=True, segments=False, explicit_positions=False,
            cross_attention=False, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=False, time="O(T (W + H))", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "never: there is no softmax")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Scores of keys and of queries, the inverse of each block's system, and products with the state."""
        block = min(self.query_block or DEFAULT_BLOCK, query_length)
        scores = block * (2 * head_dim + value_dim)
        solved = block * (head_dim + value_dim) // 2 + block**2 // 3
        with_state = 4 * head_dim * value_dim  # what it answers to keys, twice, and to queries; what is added
        forward = 2 * batch * query_length * num_heads * (scores + solved + with_state)
        return Flops(forward, 3 * forward)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        arrays = self._arrays(query, key, value, gates, mask)
        return zeroed(delta_rule(*arrays, self.query_block or DEFAULT_BLOCK), mask.query_valid)

    def _arrays(self, query, key, value, gates, mask: Mask):
        """Queries, keys and values for each head, how strongly it writes, and logarithms of decays."""
        assert gates is not None  # or the call would have been refused
        key, value = (repeated(wide(x), query.shape[2]) for x in (key, value))
        gates = wide(gates)
        write = jax.nn.sigmoid(gates[..., -1])
        if mask.key_valid is not None:
            write = jnp.where(mask.key_valid[..., None], write, 0)
        decay = forgetting(gates[..., 0], self.gate_temperature, mask) if self.gated else None
        return unit(query), unit(key), value, write, decay

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        _, key, value, write, decay = self._arrays(query, key, value, gates, mask)
        block = min(self.query_block or DEFAULT_BLOCK, key.shape[1])
        return _in_blocks(key, value, write, decay, block).state

    def _step(self, query, key, value, cache, *, params, gates):
        query, key, value, write, decay = self._arrays(query, key, value, gates, Mask())
        state = cache if decay is None else jnp.exp(decay[:, 0])[..., None, None] * cache
        change = write[..., None] * (value - jnp.einsum("BTNH,BNHV->BTNV", key, state))
        state = state + jnp.einsum("BTNH,BTNV->BNHV", key, change)
        return jnp.einsum("BTNH,BNHV->BTNV", query, state), state


class _Writes(NamedTuple):
    """What the tokens of each block write, before they know the state: B C W N V, and of it, for each of the
    state's directions, what they take back: B C W N H."""

    value: Any
    taken: Any


@functools.partial(jax.checkpoint, static_argnums=(5,))
def delta_rule(query, key, value, write, log_decay, block: int):
    """q_t.S_t for query and key B T N H, value B T N V, write B T N and log_decay B T N or None: B T N V."""
    length = query.shape[1]
    block = min(block, length)
    key, written, gone, share, before, _ = _in_blocks(key, value, write, log_decay, block)
    query = blocks(query, block)[:, :, :, :, None]
    values = written.value - jnp.einsum("BCWNH,BCNHV->BCWNV", written.taken, before)
    output = within(query, key, values, share)
    output += jnp.einsum("BCWNGH,BCNHV->BCWNGV", faded(query, gone), before)
    return output.reshape(output.shape[0], -1, *output.shape[3:4], output.shape[5])[:, :length]


class _Blocks(NamedTuple):
    """Keys and writes of each block, decays in it, the state that it begins with; the state after all."""

    key: Any
    written: _Writes
    gone: Any
    share: Any
    before: Any
    state: Any


def _in_blocks(key, value, write, log_decay, block: int) -> _Blocks:
    key, value, write = (blocks(x, block) for x in (key, value, write))
    gone = None if log_decay is None else jnp.cumsum(blocks(log_decay, block), 2)
    share = causal_share(gone, block)
    written = _writes(key, value, write, gone, share)
    return _Blocks(key, written, gone, share, *_states(key, written, gone))


def _writes(key, value, write, gone, share) -> _Writes:
    """Each token's write less what those before it in its block have written for its key: (I + A) x = b v."""
    alike = jnp.einsum("BCWNH,BCXNH->BCNWX", key, key) * share
    strength = jnp.moveaxis(write, 2, 3)[..., None]  # B C N W 1
    system = strength * jnp.tril(alike, -1)
    answered = faded(key[:, :, :, :, None], gone)[:, :, :, :, 0]
    sides = jnp.concatenate([value, answered], -1).swapaxes(2, 3) * strength
    solved = _product(inverse_of_one_plus(system), sides).swapaxes(2, 3)
    return _Writes(solved[..., : value.shape[-1]], solved[..., value.shape[-1] :])


_product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def inverse_of_one_plus(system: Float[Array, "*B W W"]) -> Float[Array, "*B W W"]:
    """(I + A)^-1 for A that is 0 on and above its diagonal, from blocks of half the size:

    [[P, 0], [R, Q]]^-1 = [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]]. Products alone: two triangular solves at once, as
    a gradient has them, can wait for each other for ever on a CPU of two cores (jaxlib 0.10.2, LAPACK).
    """
    width = system.shape[-1]
    whole = 2 ** (width - 1).bit_length()
    system = jnp.pad(system, [(0, 0)] * (system.ndim - 2) + [(0, whole - width)] * 2)
    inverses = jnp.ones((*system.shape[:-2], whole, 1, 1), system.dtype)  # of the blocks on the diagonal
    for size in (2**power for power in range(whole.bit_length() - 1)):
        first, second = inverses[..., 0::2, :, :], inverses[..., 1::2, :, :]
        tiles = system.reshape(*system.shape[:-2], -1, 2 * size, whole // (2 * size), 2 * size)
        tiles = jnp.moveaxis(jnp.diagonal(tiles, axis1=-4, axis2=-2), -1, -3)
        corner = -_product(_product(second, tiles[..., size:, :size]), first)
        above = jnp.concatenate([first, jnp.zeros_like(first)], -1)
        inverses = jnp.concatenate([above, jnp.concatenate([corner, second], -1)], -2)
    return inverses[..., 0, :width, :width]


def _states(key, written: _Writes, gone):
    """The state that each block begins with, B C N H V, and the one after all, B N H V."""
    kept = None
    if gone is not None:
        key = key * jnp.exp(gone[:, :, -1:] - gone)[..., None]
        kept = jnp.exp(gone[:, :, -1]).swapaxes(0, 1)[..., None, None]

    def step(state, of_block):
        key, (value, taken), share = of_block
        value = value - jnp.einsum("BWNH,BNHV->BWNV", taken, state)
        added = jnp.einsum("BWNH,BWNV->BNHV", key, value)
        return (state if share is None else share * state) + added, state

    key, written = jax.tree.map(lambda x: x.swapaxes(0, 1), (key, written))
    start = jnp.zeros((*key.shape[1:2], *key.shape[3:], written.value.shape[-1]), key.dtype)
    state, before = lax.scan(step, start, (key, written, kept))
    return before.swapaxes(0, 1), state
