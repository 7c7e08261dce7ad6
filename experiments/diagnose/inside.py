"""Inside a model: what the attention of each layer gets, the weights it makes of it, and gradients by part.

Weights are `attention_matrix`, in evaluation, so they are there for any variant. What a head would do if it
weighed alike all that it sees is the same variant at a temperature at which no logit counts: its hashes,
pools and windows stay as they are.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from attention import Attention, Mask, Observation, attention_matrix
from experiments.config import settings
from experiments.fields import Config
from experiments.model import transformer
from experiments.model.mixer import Inputs, in_evaluation
from experiments.model.registry import Mixer
from experiments.tasks.task import Task
from experiments.training import train

HOT = 1e6  # a temperature


class Weights(NamedTuple):
    """Of one layer: its `attention_matrix`, and what only its variant has to show."""

    matrix: Float[Array, "B N T T"]
    uniform: Float[Array, "B N T T"] | None  # as it were with all logits alike; None: it has no temperature
    observed: Mapping[str, Observation]


@dataclasses.dataclass(frozen=True)
class Inside:
    """Programs of one config, compiled for the shapes that they meet.

    `inputs`: (parameters, tokens B T, valid B T or None) -> Inputs by layer, of those that have attention.
    `weights[layer]`: (Inputs, valid) -> Weights, of these layers.
    `gradients`: (parameters, batch, rng) -> norm of the gradient of what training lowers, before clipping,
    by part, and by layer in it.
    """

    inputs: Any
    weights: Mapping[int, Any]
    gradients: Any


def of(config: Config, task: Task) -> Inside:
    """The programs that look into a config's model. Nothing is compiled before it is called."""
    mixers = [in_evaluation(x) if isinstance(x, Attention) else x for x in settings.mixers(config)]
    looked_at = {x for x in mixers if isinstance(x, Attention)}
    weighed = {x: jax.jit(functools.partial(_weights, x, task.causal)) for x in looked_at}
    layers = {layer: mixers[layer % len(mixers)] for layer in range(config.model.num_layers)}
    gradient = train.gradient(config, task)
    return Inside(
        jax.jit(functools.partial(_inputs, _graph(config, task, mixers))),
        {layer: weighed[mixer] for layer, mixer in layers.items() if mixer in weighed},
        jax.jit(lambda params, batch, rng: norms(gradient(params, batch, rng)[0])),
    )


def norms(gradient: Mapping[str, Any]) -> dict[str, dict[int, Float[Array, ""]]]:
    """Norms of the parts of a gradient that is nested as the parameters are: {part: {layer: norm}}.

    A mixer's parts are its own ("query", "key", "value", "output", and what else it has); the feed-forward
    network and the convolution are one each. Embeddings, the last layer and norms are in none.
    """
    parts: dict[str, dict[int, list[Any]]] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(gradient)[0]:
        if (found := _part(_names(path))) is not None:
            parts.setdefault(found[1], {}).setdefault(found[0], []).append(leaf)
    return {part: {layer: _norm(leaves) for layer, leaves in own.items()} for part, own in parts.items()}


def _norm(leaves: list[Any]) -> Float[Array, ""]:
    # By the greatest: the squares of what has exploded are beyond float32 long before it is.
    greatest = functools.reduce(jnp.maximum, [jnp.abs(leaf).max() for leaf in leaves]).astype(jnp.float32)
    scale = jnp.where(greatest > 0, greatest, 1)
    return scale * jnp.sqrt(sum(jnp.square(leaf.astype(jnp.float32) / scale).sum() for leaf in leaves))


def _part(names: list[str]) -> tuple[int, str] | None:
    match names:
        case ["blocks", layer, "mixer", "branch", part, *_]:
            return int(layer), part
        case ["blocks", layer, ("feed_forward" | "convolution") as part, "branch", *_]:
            return int(layer), part
    return None


def _names(path: Any) -> list[str]:
    return [str(getattr(step, "key", "")) for step in path]


def _graph(config: Config, task: Task, mixers: Sequence[Mixer]) -> Any:
    def build() -> Any:
        return transformer.build(config.model, mixers, task, nnx.Rngs(0), with_inputs=True)

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
    query, key = inputs.query, inputs.key
    learned: Any = {"params": inputs.params, "gates": inputs.gates}
    matrix, uniform = attention_matrix(variant, query, key, mask, **learned), None
    if hasattr(variant, "temperature"):
        evened: Any = dataclasses.replace(variant, temperature=HOT)  # pyright: ignore[reportArgumentType]
        uniform = attention_matrix(evened, query, key, mask, **learned)
    return Weights(matrix, uniform, variant.observe(query, key, mask, matrix, **learned))
