"""What a model costs by count, not by measurement: parameters, and FLOPs of its matrix products."""

import math
from typing import Any

import jax

import attention
from attention import Attention, Flops
from experiments.fields import Config
from experiments.tasks.task import Task


def parameters(params: Any) -> dict[str, Any]:
    """Trainable numbers: {"total", "by_array": {dotted name: {"shape", "dtype", "size"}}}."""
    arrays = {
        name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype), "size": math.prod(leaf.shape)}
        for name, leaf in _named(params).items()
    }
    return {"total": sum(array["size"] for array in arrays.values()), "by_array": arrays}


def flops(config: Config, variant: Attention, task: Task, params: Any) -> dict[str, Any]:
    """Floating point operations for one sequence of the task's length; a multiply-add is two.

    Matrix products and convolutions of the layers, forward once and backward twice, and what the variant
    counts for itself. Recomputation by `model.remat` is not counted.
    """
    tokens = task.length
    dense = sum(
        2 * math.prod(leaf.shape) * (1 if _once_a_sequence(name, task) else tokens)
        for name, leaf in _named(params).items()
        if name.endswith(".kernel")
    )
    mixing = _mixing(config, variant, task)
    layers = config.model.num_layers
    forward, backward = dense + layers * mixing.forward, 2 * dense + layers * mixing.backward
    return {
        "forward": forward,
        "training": forward + backward,
        "attention": layers * (mixing.forward + mixing.backward),
        "unit": "operations of matrix products, one sequence, analytic",
    }


def no_cheaper_than_full(config: Config, variant: Attention, task: Task) -> bool:
    """Whether a variant that is not full attention asks for as many products at the task's length."""
    if variant.capabilities.exact and math.isinf(variant.reach):
        return False
    full = attention.make("full")
    return _mixing(config, variant, task).forward >= _mixing(config, full, task).forward


def _mixing(config: Config, variant: Attention, task: Task) -> Flops:
    return variant.flops(
        batch=1,
        query_length=task.length,
        key_length=task.length,
        num_heads=config.model.num_heads,
        num_kv_heads=config.model.num_kv_heads or config.model.num_heads,
        head_dim=config.model.head_dim,
        value_dim=config.model.value_dim or config.model.head_dim,
        causal=task.causal,
    )


def _once_a_sequence(name: str, task: Task) -> bool:
    return task.head == "pooled" and name == "output.kernel"


def _named(params: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {".".join(str(getattr(key, "key", key)) for key in path): leaf for path, leaf in leaves}
