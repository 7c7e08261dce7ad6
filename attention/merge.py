"""Exact merging of parts of one softmax: branches, hash rounds, cache parts, devices."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attention.check import check_parts


def merge(
    parts: Sequence[tuple[Float[Array, "*L V"], Float[Array, "*L"]]],
) -> tuple[Float[Array, "*L V"], Float[Array, "*L"]]:
    """Output and log-sum-exp of the union of `parts`, given those of each.

    Parts hold disjoint sets of keys. With weights w_p = exp(lse_p - lse): output = sum_p w_p output_p and
    lse = log sum_p exp(lse_p). A part with lse -inf has weight 0; a row where all are -inf has output 0 and
    lse -inf, and its gradients are zero. Output in the first part's dtype; sums in float32 or wider.

    Raises TypeError for what is no list of pairs of arrays, ValueError for one that is empty or whose shapes
    do not fit.
    """
    check_parts(parts)
    dtype = parts[0][0].dtype
    wide = jnp.promote_types(dtype, jnp.float32)
    shares, lse = _shares(jnp.stack([lse.astype(wide) for _, lse in parts]))
    # Its gradient with respect to the weights is then a product too, and no sum over one, which XLA for CPUs
    # hands to a kernel that is slow for two arrays.
    output = sum(
        jnp.einsum("...,...V->...V", share, part.astype(wide), precision=jax.lax.Precision.HIGHEST)
        for share, (part, _) in zip(shares, parts, strict=True)
    )
    return jnp.asarray(output).astype(dtype), lse


def merge_stacked(
    output: Float[Array, "P ... V"], lse: Float[Array, "P ..."]
) -> tuple[Float[Array, "... V"], Float[Array, "..."]]:
    """`merge` of P parts in one array, float32 or wider: a program that does not grow with their number."""
    shares, lse = _shares(lse)
    return jnp.einsum("P...,P...V->...V", shares, output, precision=jax.lax.Precision.HIGHEST), lse


def _shares(lses):
    """The weight of each part and the log-sum-exp of all."""
    greatest = jax.lax.stop_gradient(lses.max(0))
    sees = greatest > -jnp.inf
    masses = jnp.exp(lses - jnp.where(sees, greatest, 0))
    total = jnp.where(sees, masses.sum(0), 1)
    return masses / total, jnp.where(sees, jnp.where(sees, greatest, 0) + jnp.log(total), -jnp.inf)
