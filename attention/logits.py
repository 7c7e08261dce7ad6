"""From q.k to logits: scale, temperature, soft cap."""

import dataclasses
import math

import jax.numpy as jnp
from jaxtyping import Array, Float


@dataclasses.dataclass(frozen=True)
class Logits:
    """logit = cap(scale * q.k), where cap(x) = softcap * tanh(x / softcap) (Gemma 2, 2024), or x if None."""

    scale: float
    softcap: float | None = None

    @classmethod
    def of(cls, head_dim: int, scale: float | None, temperature: float, softcap: float | None) -> "Logits":
        """Scale 1/sqrt(H) unless given (Vaswani et al. 2017, eq. 1), divided by the temperature."""
        return cls((1 / math.sqrt(max(head_dim, 1)) if scale is None else scale) / temperature, softcap)

    def cap(self, x: Float[Array, "*L"]) -> tuple[Float[Array, "*L"], Float[Array, "*L"] | float]:
        """The capped logits and their slope."""
        if self.softcap is None:
            return x, 1.0
        bent = jnp.tanh(x / self.softcap)
        return self.softcap * bent, 1 - bent**2
