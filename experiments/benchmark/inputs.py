"""The arrays that every cell is fed: standard normal, float32, the same numbers for all contenders."""

import jax
import jax.numpy as jnp

SHAPE = {"batch": 1, "num_heads": 8, "head_dim": 64}
COUNTS = {"forward": 3, "gradient": 4}  # arrays that each part takes: query, key, value, cotangent


def fresh(length: int, part: str, draw: int) -> list[jax.Array]:
    """Arrays B T N H for a part, others for each draw."""
    shape = (SHAPE["batch"], length, SHAPE["num_heads"], SHAPE["head_dim"])
    keys = jax.random.split(jax.random.fold_in(jax.random.key(length), draw), COUNTS[part])
    return jax.block_until_ready([jax.random.normal(key, shape, jnp.float32) for key in keys])
