"""How a model knows where a token stands."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

LONGEST_WAVE = 10_000.0


def sinusoidal(length: int, width: int) -> Float[Array, "T D"]:
    """Fixed encodings (Vaswani et al. 2017), float32: sines in the first half of D, then cosines."""
    angles = _angles(length, -(-width // 2))
    return jnp.asarray(np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width], jnp.float32)


class Place(NamedTuple):
    """Where the one new token of each row stands, B int32, in sequences of up to `max_length` tokens."""

    index: Any
    max_length: int


def rotary(x: Float[Array, "B T heads H"], place: Place | None = None) -> Float[Array, "B T heads H"]:
    """Turn the pairs (i, i + H/2) of each head by angles that grow with the position (Su et al. 2021).

    Products of two such vectors depend on the distance of their positions only. In float32, output in x's
    dtype. Tokens stand from 0 on, or the one of each row at its `place`. Raises ValueError for an odd H.
    """
    if x.shape[-1] % 2:
        raise ValueError(f"rotary positions need an even head_dim, got {x.shape[-1]}")
    angles = _angles(x.shape[1] if place is None else place.max_length, x.shape[-1] // 2)[:, None, :]
    cos, sin = jnp.asarray(np.cos(angles), jnp.float32), jnp.asarray(np.sin(angles), jnp.float32)
    if place is not None:
        cos, sin = cos[place.index][:, None], sin[place.index][:, None]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)
    return turned.astype(x.dtype)


def _angles(length: int, waves: int) -> np.ndarray:
    # float64: in float32 the angles of far positions would be off by thousandths.
    frequencies = LONGEST_WAVE ** (-np.arange(waves) / max(waves, 1))
    return np.arange(length)[:, None] * frequencies
