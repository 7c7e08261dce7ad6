"""Entropy of the attention weights, by the same blockwise pass that gives the output."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attention.check import check_call
from attention.interface import Params, SoftmaxAttention
from attention.logits import Logits
from attention.mask import Mask
from attention.operands import repeated


def attend_with_entropy(
    variant: SoftmaxAttention,
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"] | None,
    value: Float[Array, "B S K V"],
    mask: Mask,
    *,
    params: Params = {},  # noqa: B006 (never written to)
    rng: Key[Array, ""] | None = None,
    gates: Float[Array, "B T N F"] | None = None,
) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
    """The variant's output, and the entropy of each row's weights in nats, float32 or wider, differentiable.

    No weight is written out: as log w_s = scale q.k_s - lse, the entropy -sum_s w_s log w_s is
    lse - scale q.(sum_s w_s k_s), and the sum is the output where the keys are the values. A pool whose
    members are counted in its logit is so many keys, each with an equal share of its weight; one whose are
    not (`count_members=False`) is one key. Of a row that sees nothing the entropy is 0. With dropout the sum
    is over the weights that were kept: right in the mean.

    Cost: values as wide as values and keys together, and the pass in float32 or wider, from which the output
    is rounded. What is returned is a difference of two numbers of the logits' size: with weights or a mean
    key in bfloat16 it would be off by that size over 256.

    Raises ValueError or NotImplementedError as calling the variant does, and NotImplementedError for a soft
    cap, where the logits are not linear in the keys.
    """
    if reason := no_entropy(variant):
        raise NotImplementedError(reason)
    check_call(variant, query, key, value, mask, params=params, rng=rng, gates=gates)
    dtype = query.dtype
    query, value = _widened(query), _widened(value)
    key = None if key is None else _widened(key)
    matched = variant.matched_key(query, key)
    value = repeated(value, matched.shape[2])  # shared keys have the queries' heads
    joined = jnp.concatenate([value, matched], -1)
    output, lse = variant.attend(query, key, joined, mask, params=params, rng=rng, gates=gates)
    output, mean_key = output[..., : value.shape[-1]], output[..., value.shape[-1] :]
    scale = Logits.of(variant, query.shape[-1]).scale
    sees = lse > -jnp.inf
    query = jnp.where(sees[..., None], query, 0)  # a padded one may hold anything
    expected = scale * jnp.einsum("BTNH,BTNH->BTN", query, mean_key)
    entropy = jnp.where(sees, lse, 0) - expected
    return output.astype(dtype), entropy


def _widened(array):
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def no_entropy(variant: Any) -> str | None:
    """Why the entropy of the variant's weights cannot be had, None if it can."""
    if not isinstance(variant, SoftmaxAttention):
        return f"{variant.name} has no softmax whose entropy could be taken"
    if not variant.capabilities.value_width:
        return f"{variant.name} takes no values that are wider than the keys, which entropy needs"
    if getattr(variant, "softcap", None) is not None:
        return f"entropy is not known under {variant.name}'s softcap={variant.softcap}"  # pyright: ignore[reportAttributeAccessIssue]
    return None
