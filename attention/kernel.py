"""Attention whose weights are products of features, so that sums over keys are had once for all queries.

output_t = sum_s w_ts v_s / sum_s w_ts with w_ts = phi(q_t).phi(k_s), features at least 0 (Katharopoulos et
al. 2020, eq. 4-7). Rows sum to 1: the denominator is the numerator for values of 1, and has no epsilon.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from attention.interface import Flops
from attention.mask import Mask
from attention.state import decayed_sums, from_the_end

# Added to every feature. With it no row that sees a key has a denominator of 0, and rows still sum to 1.
FLOOR = 1e-6


def kernel_attention(
    query: Float[Array, "B T N F"],
    key: Float[Array, "B S K F"],
    value: Float[Array, "B S K V"],
    mask: Mask,
    *,
    block: int,
    log_weight: Float[Array, "B S K"] | None = None,
) -> Float[Array, "B T N V"]:
    """Output for features of queries and keys, all in one dtype, float32 or wider.

    With `log_weight` each key counts exp(log_weight) times. What is not seen, by padding or the order, has no
    weight; a row that sees nothing is 0. By O(T block) or, not causal, O(T + S) memory.
    """
    valid = None if mask.key_valid is None else mask.key_valid[:, :, None]
    decay = None
    if log_weight is not None:
        key, decay = _weighed(key, log_weight, valid, mask.causal)
    elif valid is not None:
        key = jnp.where(valid[..., None], key, 0)
    value = _with_one(value)
    if mask.causal:
        sums = _of_the_past(query, key, value, decay, block)
    else:
        grouped = query.reshape(*query.shape[:2], key.shape[2], -1, query.shape[3])
        sums = jnp.einsum("BTKGF,BKFV->BTKGV", grouped, jnp.einsum("BSKF,BSKV->BKFV", key, value))
        sums = sums.reshape(*query.shape[:3], -1)
    total = sums[..., -1:]
    sees = total > 0
    if mask.query_valid is not None:
        sees &= mask.query_valid[:, :, None, None]
    return jnp.where(sees, sums[..., :-1] / jnp.where(sees, total, 1), 0)


class Sums(NamedTuple):
    """What decoding remembers: sums of keys and values, B K F V+1, weighed against the greatest log-weight so
    far, B K, and how many tokens there were, B."""

    sums: Any
    greatest: Any
    length: Any


def summed(
    key: Float[Array, "B S K F"], value: Float[Array, "B S K V"], mask: Mask,
    log_weight: Float[Array, "B S K"] | None = None,
) -> Sums:  # fmt: skip
    """The sums over all keys that are no padding, for the arrays that `kernel_attention` takes."""
    assert mask.key_valid is not None  # decoding always has it
    valid = mask.key_valid[:, :, None]
    length = mask.key_valid.sum(1, dtype=jnp.int32)
    greatest = jnp.zeros(key.shape[:1] + key.shape[2:3], key.dtype)
    if log_weight is not None:
        some = length[:, None] > 0
        greatest = jnp.where(some, jnp.where(valid, log_weight, -jnp.inf).max(1), 0)
        key = key * jnp.exp(jnp.where(valid, log_weight - greatest[:, None], -jnp.inf))[..., None]
    key = jnp.where(valid[..., None], key, 0)
    return Sums(jnp.einsum("BSKF,BSKV->BKFV", key, _with_one(value)), greatest, length)


def kernel_step(query, key, value, cache: Sums, log_weight=None) -> tuple[Float[Array, "B 1 N V"], Sums]:
    """The output for one more token of each row."""
    sums, greatest, length = cache
    if log_weight is not None:
        new = log_weight[:, 0]
        most = jnp.where(length[:, None] > 0, jnp.maximum(greatest, new), new)
        sums = sums * jnp.exp(greatest - most)[..., None, None]
        key, greatest = key * jnp.exp(new - most)[:, None, :, None], most
    sums = sums + jnp.einsum("BSKF,BSKV->BKFV", key, _with_one(value))
    grouped = query.reshape(*query.shape[:2], key.shape[2], -1, query.shape[3])
    output = jnp.einsum("BTKGF,BKFV->BTKGV", grouped, sums)
    output = output.reshape(*query.shape[:3], -1)
    return output[..., :-1] / output[..., -1:], Sums(sums, greatest, length + 1)


def _with_one(value):
    """A last column of ones: its sum is the denominator."""
    return jnp.concatenate([value, jnp.ones_like(value[..., :1])], -1)


def _of_the_past(query, key, value, decay, block: int):
    """The last query stands at the last key; T and S may differ."""
    query_length, length = query.shape[1], max(query.shape[1], key.shape[1])
    query, key, value = (from_the_end(x, length) for x in (query, key, value))
    decay = None if decay is None else from_the_end(decay, length)
    return decayed_sums(query, key, value, decay, block)[:, length - query_length :]


def _weighed(key, log_weight, valid, causal: bool) -> tuple[Any, Any]:
    """Keys weighed against the heaviest so far, or, not causal, of all; and the decay that follows from it.

    What is subtracted is common to a row and cancels, so it has no gradient.
    """
    least = jnp.finfo(key.dtype).min / 4
    if valid is not None:
        log_weight = jnp.where(valid, log_weight, least)
    fixed = lax.stop_gradient(log_weight)
    greatest = lax.cummax(fixed, axis=1) if causal else fixed.max(1, keepdims=True)
    share = jnp.exp(log_weight - greatest)
    if valid is not None:
        share = jnp.where(valid, share, 0)
    if not causal:
        return key * share[..., None], None
    before = jnp.concatenate([greatest[:, :1], greatest[:, :-1]], 1)
    # Before the first real key there is nothing that could decay, and so great a step would drown the others.
    return key * share[..., None], jnp.where(before > least, before - greatest, 0)


def kernel_flops(
    *, batch: int, query_length: int, key_length: int, num_heads: int, num_kv_heads: int, num_features: int,
    value_dim: int, causal: bool, block: int,
) -> Flops:  # fmt: skip
    """Sums of keys and values, products of queries with them and, causal, all pairs inside a block.

    With the denominators' column. The backward has two products for each, after those of the forward again.
    """
    length = max(query_length, key_length) if causal else query_length
    width = num_features * (value_dim + 1)
    products = length * num_heads * width
    products += (length if causal else key_length) * num_kv_heads * width
    if causal:
        products += length * num_heads * min(block, length) * (num_features + value_dim + 1)
    forward = 2 * batch * products
    return Flops(forward, 3 * forward if causal else 2 * forward)
