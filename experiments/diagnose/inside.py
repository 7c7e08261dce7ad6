"""Inside a model: what the attention of each layer gets, the weights it makes of it, and gradients by part.

Weights are `attention_matrix`, so all of this is there for any variant.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from attention import Attention, Mask, Observation, attention_matrix
from experiments.config import settings
from experiments.fields import Config
from experiments.model import transformer
from experiments.model.mixer import Inputs
from experiments.tasks.task import Task
from experiments.training import train


class Weights(NamedTuple):
    """Of one layer: its `attention_matrix`, and what only its variant has to show."""

    matrix: Float[Array, "B N T T"]
    observed: Mapping[str, Observation]


@dataclasses.dataclass(frozen=True)
class Inside:
    """Programs of one config, compiled for the shapes that they meet.

    `inputs`: (parameters, tokens B T, valid B T or None) -> Inputs by layer, of those that have attention.
    `weights`: (Inputs, valid) -> Weights.
    `gradients`: (parameters, batch, rng) -> norm of the training loss's gradient by part, and by layer in it.
    """

    inputs: Any
    weights: Any
    gradients: Any


def of(config: Config, task: Task) -> Inside:
    """The programs that look into a config's model. Nothing is compiled before it is called."""
    variant = settings.variant(config)
    gradient = train.gradient(config, task)
    return Inside(
        jax.jit(functools.partial(_inputs, _graph(config, task, variant))),
        jax.jit(functools.partial(_weights, variant, task.causal)),
        jax.jit(lambda params, batch, rng: norms(gradient(params, batch, rng)[0])),
    )


def norms(gradient: Mapping[str, Any]) -> dict[str, dict[int, Float[Array, ""]]]:
    """Norms of the parts of a gradient that is nested as the parameters are: {part: {layer: norm}}.

    A mixer's parts are its own ("query", "key", "value", "output", and what else it has); the feed-forward
    network is one.
    """
    squares: dict[str, dict[int, Any]] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(gradient)[0]:
        if (found := _part(_names(path))) is None:
            continue
        layer, part = found
        own = squares.setdefault(part, {})
        own[layer] = own.get(layer, 0.0) + jnp.sum(jnp.square(leaf.astype(jnp.float32)))
    return {part: {layer: jnp.sqrt(x) for layer, x in own.items()} for part, own in squares.items()}


def _part(names: list[str]) -> tuple[int, str] | None:
    match names:
        case ["blocks", layer, "mixer", "branch", part, *_]:
            return int(layer), part
        case ["blocks", layer, "feed_forward", "branch", *_]:
            return int(layer), "feed_forward"
    return None


def _names(path: Any) -> list[str]:
    return [str(getattr(step, "key", "")) for step in path]


def _graph(config: Config, task: Task, variant: Attention) -> Any:
    def build() -> Any:
        return transformer.build(config.model, variant, task, nnx.Rngs(0), with_inputs=True)

    return nnx.split(nnx.eval_shape(build))[0]


def _inputs(
    graph: Any, params: Any, tokens: Int[Array, "B T"], valid: Bool[Array, "B T"] | None
) -> dict[int, Inputs]:
    built: Any = nnx.merge(graph, params)
    _, kept = nnx.capture(built, nnx.Intermediate)(tokens, valid)
    found = jax.tree_util.tree_flatten_with_path(kept, is_leaf=lambda x: isinstance(x, Inputs))[0]
    return {int(_names(path)[1]): inputs for path, inputs in found}  # blocks, layer, ...


def _weights(variant: Attention, causal: bool, inputs: Inputs, valid: Bool[Array, "B T"] | None) -> Weights:
    mask = Mask.for_self(causal=causal, valid=valid)
    query, key, params = inputs.query, inputs.key, inputs.params
    matrix = attention_matrix(variant, query, key, mask, params=params, gates=inputs.gates)
    return Weights(matrix, variant.observe(query, key, mask, matrix, params=params))
