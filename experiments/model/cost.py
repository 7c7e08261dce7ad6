"""What a model costs by count, not by measurement: parameters, and FLOPs of its matrix products."""

import math
from collections.abc import Sequence
from typing import Any

import jax

from attention import Flops
from experiments.fields import Config
from experiments.model import registry
from experiments.model.registry import Mixer
from experiments.tasks.task import Task


def parameters(params: Any) -> dict[str, Any]:
    """Trainable numbers: {"total", "by_array": {dotted name: {"shape", "dtype", "size"}}}."""
    arrays = {
        name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype), "size": math.prod(leaf.shape)}
        for name, leaf in _named(params).items()
    }
    return {"total": sum(array["size"] for array in arrays.values()), "by_array": arrays}


def flops(config: Config, mixers: Sequence[Mixer], task: Task, params: Any) -> dict[str, Any]:
    """Floating point operations for one sequence of the task's length; a multiply-add is two.

    Matrix products and convolutions of the layers, forward once and backward twice, and what each layer's
    mixer counts for itself ("attention"), the mixers in turn. Recomputation by `model.remat` is not counted.
    """
    tokens = task.length
    dense = sum(
        2 * math.prod(leaf.shape) * (1 if _once_a_sequence(name, task) else tokens)
        for name, leaf in _named(params).items()
        if name.endswith(".kernel")
    )
    by_mixer = [_mixing(config, mixer, task) for mixer in mixers]
    mixing = [by_mixer[layer % len(by_mixer)] for layer in range(config.model.num_layers)]
    mixed_forward, mixed_backward = sum(x.forward for x in mixing), sum(x.backward for x in mixing)
    forward, backward = dense + mixed_forward, 2 * dense + mixed_backward
    return {
        "forward": forward,
        "training": forward + backward,
        "attention": mixed_forward + mixed_backward,
        "unit": "operations of matrix products, one sequence, analytic",
    }


def no_cheaper_than_full(config: Config, mixer: Mixer, task: Task) -> bool:
    """Whether a mixer that is not full attention asks for as many products at the task's length."""
    if mixer.capabilities.exact and math.isinf(mixer.reach):
        return False
    full = registry.make("full")
    return _mixing(config, mixer, task).forward >= _mixing(config, full, task).forward


def _mixing(config: Config, mixer: Mixer, task: Task) -> Flops:
    return mixer.flops(
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
