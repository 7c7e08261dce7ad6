"""From what a model predicts to the next token: the likeliest, or one that is drawn."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from attention.check import check_count, check_field, is_real


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a token is chosen: of those that are left, each as likely as exp(logit / temperature) says.

    Left are the `top_k` likeliest and, of these, the fewest whose probabilities at that temperature sum to
    `top_p` at least (Holtzman et al. 2020, section 3.1). At temperature 0 it is the likeliest.
    """

    temperature: float = 1.0
    top_k: int | None = None  # None: all
    top_p: float = 1.0

    name = "sampling"

    def __post_init__(self):
        warm = is_real(self.temperature) and 0 <= self.temperature < math.inf
        check_field(self, "temperature", "a number of at least 0", warm)
        check_count(self, "top_k", optional=True)
        check_field(self, "top_p", "a number in (0, 1]", is_real(self.top_p) and 0 < self.top_p <= 1)


def choose(logits: Float[Array, "B O"], rng: Key[Array, ""], sampling: Sampling) -> Int[Array, " B"]:
    """A token for each row, int32. Rows draw apart: what one draws does not depend on how many there are."""
    if sampling.temperature == 0:
        return logits.argmax(-1).astype(jnp.int32)
    # From the likeliest on, so that what is left is in front; the lower number first where two are as likely.
    order = jnp.argsort(-logits, axis=-1, stable=True)
    sorted_logits = jnp.take_along_axis(logits, order, -1)
    scaled = (sorted_logits - sorted_logits[:, :1]) / max(sampling.temperature, 1e-30)
    place = jnp.arange(logits.shape[1])
    left = place < (sampling.top_k or logits.shape[1])
    share = jax.nn.softmax(jnp.where(left, scaled, -jnp.inf))
    before = jnp.cumsum(share, -1) - share
    left = left & ((before < sampling.top_p) | (place == 0))
    rngs = jax.vmap(jax.random.fold_in, (None, 0))(rng, jnp.arange(len(logits)))
    drawn = jax.vmap(jax.random.categorical)(rngs, jnp.where(left, scaled, -jnp.inf))
    return jnp.take_along_axis(order, drawn[:, None], -1)[:, 0].astype(jnp.int32)
