"""A softmax over logits that are written out: a whole matrix of them, or the one row of a last token."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from attention.dropout import Dropout, drop


def softmax_of(
    logits: Float[Array, "#B K G T S"],
    value: Float[Array, "B S K V"],
    dropout: Dropout | None = None,
    dropout_rate: float = 0.0,
) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
    """Output and log-sum-exp of logits that are written out, -inf where nothing is seen, in their dtype."""
    # Whatever is subtracted cancels; its gradient would only cost time and memory.
    greatest = lax.stop_gradient(logits.max(-1, initial=-jnp.inf, keepdims=True))
    sees = greatest > -jnp.inf
    mass = jnp.exp(logits - jnp.where(sees, greatest, 0))
    total = jnp.where(sees, mass.sum(-1, keepdims=True), 1)
    weight = drop(mass / total, dropout, dropout_rate).astype(value.dtype)
    weight = jnp.broadcast_to(weight, (len(value), *weight.shape[1:]))
    output = jnp.einsum("BKGTS,BSKV->BTKGV", weight, value, preferred_element_type=logits.dtype)
    lse = jnp.where(sees, jnp.where(sees, greatest, 0) + jnp.log(total), -jnp.inf)[..., 0]
    lse = jnp.broadcast_to(lse, (len(value), *lse.shape[1:])).transpose(0, 3, 1, 2)
    return output.reshape(*output.shape[:2], -1, output.shape[4]), lse.reshape(*lse.shape[:2], -1)
