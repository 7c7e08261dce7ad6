"""The arrays that every cell is fed: standard normal, float32, the same numbers for all contenders."""

from typing import Any

import jax
import jax.numpy as jnp

import attention

SHAPE = {"batch": 1, "num_heads": 8, "head_dim": 64}
COUNTS = {"forward": 3, "gradient": 4}  # arrays that each part takes: query, key, value, cotangent


def fresh(length: int, part: str, draw: int) -> list[jax.Array]:
    """Arrays B T N H for a part, others for each draw."""
    shape = (SHAPE["batch"], length, SHAPE["num_heads"], SHAPE["head_dim"])
    keys = jax.random.split(jax.random.fold_in(jax.random.key(length), draw), COUNTS[part])
    return jax.block_until_ready([jax.random.normal(key, shape, jnp.float32) for key in keys])


def besides(variant: attention.Attention, length: int) -> dict[str, Any]:
    """What else a variant takes, the same in each draw: `params` as it begins with them, and `gates`."""
    batch, num_heads, head_dim = SHAPE["batch"], SHAPE["num_heads"], SHAPE["head_dim"]
    of_params, of_gates = jax.random.split(jax.random.key(length))
    params = variant.init(
        of_params, num_heads=num_heads, num_kv_heads=num_heads, head_dim=head_dim,
        model_dim=num_heads * head_dim, max_length=length,
    )  # fmt: skip
    found: dict[str, Any] = {"params": params} if params else {}
    if variant.num_gates:
        found["gates"] = jax.random.normal(of_gates, (batch, length, num_heads, variant.num_gates))
    return found
