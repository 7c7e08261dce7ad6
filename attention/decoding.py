"""Token by token: what `init_cache`, `prefill` and `step` do around the two functions of a variant's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from attention.check import check_call, check_decodes, check_prompt
from attention.mask import Mask
from attention.operands import gates_of_tokens, is_empty, operands, tokens

if TYPE_CHECKING:
    from attention.interface import Attention


def empty_cache(
    variant: Attention, batch: int, max_length: int, *, num_heads, num_kv_heads, head_dim, value_dim, dtype
) -> Any:
    """Zeros of the shapes that a prompt of one token leaves."""
    check_decodes(variant, max_length)

    def of_one_token():
        sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
        params = variant.init(
            jax.random.key(0), **sizes, model_dim=num_heads * head_dim, max_length=max_length
        )
        query = jnp.zeros((batch, 1, num_heads, head_dim), dtype)
        key = None if variant.capabilities.shared_key else query[:, :, :num_kv_heads]
        value = jnp.zeros((batch, 1, num_kv_heads, value_dim), dtype)
        gates = jnp.zeros((batch, 1, num_heads, variant.num_gates), dtype) if variant.num_gates else None
        mask = _mask(jnp.zeros(batch, jnp.int32), 1)
        arrays = tokens(query, key, value, mask)
        return variant._cached(*arrays, mask, max_length=max_length, params=params, gates=gates)

    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_one_token))


def prefill(variant: Attention, query, key, value, *, max_length: int, lengths, params, gates):
    check_decodes(variant, max_length)
    check_prompt(lengths, query, max_length)
    mask = Mask(causal=True) if lengths is None else _mask(lengths, query.shape[1])
    output = variant(query, key, value, mask, params=params, gates=gates)
    if is_empty(query, value):
        return output, empty_cache(
            variant, len(query), max_length, num_heads=query.shape[2], num_kv_heads=value.shape[2],
            head_dim=query.shape[3], value_dim=value.shape[3], dtype=query.dtype,
        )  # fmt: skip
    lengths = jnp.full(len(query), query.shape[1], jnp.int32) if lengths is None else lengths
    mask = _mask(lengths, query.shape[1])
    arrays, gates = _arrays(variant, query, key, value, mask), gates_of_tokens(gates, mask)
    return output, variant._cached(*arrays, mask, max_length=max_length, params=params, gates=gates)


def step(variant: Attention, query, key, value, cache, *, params, gates):
    check_decodes(variant, 1)
    check_call(variant, query, key, value, Mask(causal=True), params=params, rng=None, gates=gates)
    if query.shape[1] != 1:
        raise ValueError(f"query {query.shape} has {query.shape[1]} tokens; step takes one of each row")
    rows = {x.shape[:1] for x in jax.tree.leaves(cache)}
    if rows - {query.shape[:1]}:
        raise ValueError(f"{variant.name}: cache is of {rows} rows, but query {query.shape} of {len(query)}")
    arrays = _arrays(variant, query, key, value, Mask())
    output, after = variant._step(*arrays, cache, params=params, gates=gates)
    before, found = (jax.tree.map(lambda x: (x.shape, str(x.dtype)), tree) for tree in (cache, after))
    if before != found:
        raise ValueError(f"{variant.name}: cache has {before}, which does not go with query {query.shape}, "
                         f"{query.dtype} and value {value.shape}; accepted is {found}")  # fmt: skip
    return output[..., : value.shape[3]].astype(query.dtype), after


def _arrays(variant: Attention, query, key, value, mask: Mask):
    return (tokens if variant.capabilities.shared_key else operands)(query, key, value, mask)


def _mask(lengths, length: int) -> Mask:
    return Mask.for_self(causal=True, valid=jnp.arange(length) < lengths[:, None])
