"""Entropy of the attention weights, by the same blockwise pass that gives the output."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attention.interface import Params, SoftmaxAttention
from attention.logits import Logits
from attention.mask import Mask


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
    lse - scale q.(sum_s w_s k_s), and the sum is the output where the keys are the values. A pool's weight
    counts as spread evenly over its members. Of a row that sees nothing it is 0. With dropout the sum is over
    the weights that were kept: right in the mean. Cost: values as wide as values and keys together.

    Raises ValueError or NotImplementedError as calling the variant does, and NotImplementedError for a soft
    cap, where the logits are not linear in the keys.
    """
    if reason := no_entropy(variant):
        raise NotImplementedError(reason)
    matched = variant.matched_key(query, key)
    if matched.shape[2] != value.shape[2]:  # shared keys have the queries' heads
        value = jnp.repeat(value, matched.shape[2] // value.shape[2], 2)
    joined = jnp.concatenate([value, matched], -1)
    output, lse = variant.attend(query, key, joined, mask, params=params, rng=rng, gates=gates)
    mean_key = output[..., value.shape[-1] :].astype(lse.dtype)
    scale = Logits.of(variant, query.shape[-1]).scale
    sees = lse > -jnp.inf
    query = jnp.where(sees[..., None], query.astype(lse.dtype), 0)  # a padded one may hold anything
    expected = scale * jnp.einsum("BTNH,BTNH->BTN", query, mean_key)
    entropy = jnp.where(sees, lse, 0) - expected
    return output[..., : value.shape[-1]], entropy


def no_entropy(variant: Any) -> str | None:
    """Why the entropy of the variant's weights cannot be had, None if it can."""
    if not isinstance(variant, SoftmaxAttention):
        return f"{variant.name} has no softmax whose entropy could be taken"
    if not variant.capabilities.value_width:
        return f"{variant.name} takes no values that are wider than the keys, which entropy needs"
    if getattr(variant, "softcap", None) is not None:
        return f"entropy is not known under {variant.name}'s softcap={variant.softcap}"  # pyright: ignore[reportAttributeAccessIssue]
    return None
