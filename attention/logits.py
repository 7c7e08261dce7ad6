"""From q.k to logits: scale, temperature, soft cap."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float


@dataclasses.dataclass(frozen=True)
class Logits:
    """logit = cap(scale * q.k), where cap(x) = softcap * tanh(x / softcap) (Gemma 2, 2024), or x if None."""

    scale: float
    softcap: float | None = None

    @classmethod
    def of(cls, variant: Any, head_dim: int) -> "Logits":
        """A variant's scale, 1/sqrt(H) unless given (Vaswani et al. 2017, eq. 1), over its temperature."""
        scale = 1 / math.sqrt(max(head_dim, 1)) if variant.scale is None else variant.scale
        # An int may be beyond those that jax takes.
        softcap = None if variant.softcap is None else float(variant.softcap)
        return cls(scale / variant.temperature, softcap)

    def cap(self, x: Float[Array, "*L"]) -> tuple[Float[Array, "*L"], Float[Array, "*L"] | float]:
        """The capped logits and their slope."""
        if self.softcap is None:
            return x, 1.0
        bent = jnp.tanh(x / self.softcap)
        return self.softcap * bent, 1 - bent**2
