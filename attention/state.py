"""Sums over the past as a state: o_t = q_t.S_t, S_t = decay_t S_{t-1} + k_t v_t^T, block by block.

Within a block of queries the sum is a masked product of scores, from block to block a state H V is handed on
(Hua et al. 2022, section 3.3; Sun et al. 2023, section 2.3). Logarithms of decays are at most 0, and only
their differences from later to earlier tokens are raised to powers, so that nothing overflows.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from attention.interface import Flops
from attention.mask import Mask
from attention.operands import blocks

DEFAULT_BLOCK = 64  # a block's scores are then as many numbers as the queries of usual width


@functools.partial(jax.checkpoint, static_argnums=(4,))
def decayed_sums(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B T K H"],
    value: Float[Array, "B T K V"],
    log_decay: Float[Array, "b T k"] | None,
    block: int,
) -> Float[Array, "B T N V"]:
    """sum over s <= t of exp(log_decay_{s+1} + ... + log_decay_t) (q_t.k_s) v_s, in the arrays' own dtype.

    `log_decay` (None: none) is at most 0. O(T block) memory forward and backward, which computes it again.
    """
    length, num_heads = query.shape[1], query.shape[2]
    block = min(block, length)
    query, key, value = (blocks(x, block) for x in (query, key, value))
    query = query.reshape(*query.shape[:3], key.shape[3], -1, query.shape[4])
    gone = None if log_decay is None else jnp.cumsum(blocks(log_decay, block), 2)  # B C W K
    before = states(key, value, gone)
    output = within(query, key, value, causal_share(gone, block))
    output += jnp.einsum("BCWKGH,BCKHV->BCWKGV", faded(query, gone), before)
    return output.reshape(output.shape[0], -1, num_heads, output.shape[-1])[:, :length]


def states(key, value, gone) -> Any:
    """What is handed on to each block: B C K H V, from blocks B C W K H, B C W K V and B C W K of decays."""
    if gone is None:
        added = jnp.einsum("BCWKH,BCWKV->CBKHV", key, value)
        kept = None
    else:
        left = jnp.exp(gone[:, :, -1:] - gone)
        added = jnp.einsum("BCWKH,BCWKV->CBKHV", key * left[..., None], value)
        kept = jnp.exp(gone[:, :, -1]).swapaxes(0, 1)[..., None, None]

    def step(state, of_block):
        new, share = of_block
        return (state if share is None else share * state) + new, state

    _, before = lax.scan(step, jnp.zeros_like(added[0]), (added, kept))
    return before.swapaxes(0, 1)


def within(query, key, value, share) -> Any:
    """What each query of a block (B C W K G H) has from its own: B C W K G V."""
    scores = jnp.einsum("BCWKGH,BCXKH->BCKGWX", query, key)
    return jnp.einsum("BCKGWX,BCXKV->BCWKGV", scores * share[:, :, :, None], value)


def causal_share(gone, block: int) -> Any:
    """How much of what token x gave is left at token w, 0 if w is before x: B C K W X."""
    earlier = jnp.tril(jnp.ones((block, block), bool))
    if gone is None:
        return earlier[None, None, None]
    gone = jnp.moveaxis(gone, 2, 3)
    left = gone[..., :, None] - gone[..., None, :]
    return jnp.where(earlier, jnp.exp(jnp.where(earlier, left, 0)), 0)


def faded(query, gone):
    """Queries as they meet the state of before their block: the decays of the block up to each applied."""
    return query if gone is None else query * jnp.exp(gone)[..., None, None]


def last_state(
    key: Float[Array, "B T N H"], value: Float[Array, "B T N V"], log_decay: Float[Array, "b T n"]
) -> Float[Array, "B N H V"]:
    """S_T, the sum over all s of exp(log_decay_{s+1} + ... + log_decay_T) k_s v_s^T."""
    # From the end, where sums are small and exact: what is far back is next to nothing.
    left = jnp.exp(jnp.cumsum(log_decay[:, ::-1], 1)[:, ::-1] - log_decay)
    return jnp.einsum("BTNH,BTNV->BNHV", key * left[..., None], value)


def state_step(query, key, value, log_decay, state) -> tuple[Float[Array, "B 1 N V"], Any]:
    """q_t.S_t and S_t for one more token of each row; log_decay b 1 n."""
    kept = jnp.exp(log_decay[:, 0])[..., None, None] * state
    state = kept + jnp.einsum("BTNH,BTNV->BNHV", key, value)
    return jnp.einsum("BTNH,BNHV->BTNV", query, state), state


def forgetting(gate: Float[Array, "B T N"], temperature: float, mask: Mask) -> Float[Array, "B T N"]:
    """log sigmoid(gate) / temperature (Yang et al. 2024, section 4.4); 0, all is kept, where padding is."""
    decay = jax.nn.log_sigmoid(gate) / temperature
    return decay if mask.key_valid is None else jnp.where(mask.key_valid[..., None], decay, 0)


def decayed_flops(
    length: int, *, batch: int, num_heads: int, head_dim: int, value_dim: int, block: int
) -> Flops:
    """The state's sums, queries with it, and all pairs inside a block; the backward computes it all again."""
    each = 2 * head_dim * value_dim + min(block, length) * (head_dim + value_dim)
    forward = 2 * batch * length * num_heads * each
    return Flops(forward, 3 * forward)


def from_the_end(x: Any, length: int) -> Any:
    """B T ... -> B length ..., zeros in front: the last query stands at the last key."""
    width = [(0, 0)] * x.ndim
    width[1] = (length - x.shape[1], 0)
    return jnp.pad(x, width)
