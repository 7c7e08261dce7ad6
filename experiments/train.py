"""Training and evaluation as pure functions of plain trees."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Int

from experiments import model, optimizer, settings
from experiments.config import Config
from experiments.data import Batch
from experiments.tasks.task import Task

Params = dict[str, Any]
Seed = int | np.integer | Int[Array, ""]
Metrics = dict[str, Array]


class TrainState(NamedTuple):
    """All that a training step changes."""

    params: Params  # nested dictionary, float32
    opt_state: optax.OptState
    step: Int[Array, ""]  # int32, how many were taken


def init_state(config: Config, task: Task, seed: Seed) -> TrainState:
    """The state before the first step."""
    return _init(config, task)(seed)


def abstract_state(config: Config, task: Task) -> TrainState:
    """Shapes and dtypes of the state; nothing is allocated."""
    return jax.eval_shape(_init(config, task), 0)


def train_step(config: Config, task: Task) -> jax.stages.Wrapped:
    """(state, batch, seed int32) -> (state, metrics), compiled once for all seeds; the old state is donated.

    Metrics, scalars: `loss` (nats), `grad_norm` before clipping, `learning_rate`, `finite` (loss and
    gradient are). Dropout and the variant's draws come from (seed, step).
    """
    forward = _forward(config, task)
    transform = optimizer.make(config.optimizer, config.train.steps)
    learning_rate = optimizer.schedule(config.optimizer, config.train.steps)

    def loss_fn(params: Params, batch: Batch, rng: Array) -> Array:
        total, weight = task.losses(forward(params, batch, rng), batch)["loss"]
        return total / weight

    def step(state: TrainState, batch: Batch, seed: Seed) -> tuple[TrainState, Metrics]:
        rng = jax.random.fold_in(_stream(seed, "step"), state.step)
        loss, grads = jax.value_and_grad(loss_fn)(state.params, batch, rng)
        updates, opt_state = transform.update(grads, state.opt_state, state.params)
        params: Any = optax.apply_updates(state.params, updates)
        grad_norm = optax.tree.norm(grads)
        metrics = {
            "loss": loss,
            "grad_norm": grad_norm,
            "learning_rate": jnp.asarray(learning_rate(state.step), jnp.float32),
            "finite": jnp.isfinite(loss) & jnp.isfinite(grad_norm),
        }
        return TrainState(params, opt_state, state.step + 1), metrics

    return jax.jit(step, donate_argnums=0)


def eval_step(config: Config, task: Task) -> jax.stages.Wrapped:
    """(params, batch) -> {metric: (sum, weight)} of the task, compiled once for each shape."""
    forward = _forward(config, task)
    return jax.jit(lambda params, batch: task.losses(forward(params, batch, None), batch))


def _forward(config: Config, task: Task) -> Callable[[Params, Batch, Array | None], Array]:
    graph, _ = nnx.split(nnx.eval_shape(lambda: _build(config, task, nnx.Rngs(0))))

    def forward(params: Params, batch: Batch, rng: Array | None) -> Array:
        return nnx.merge(graph, params)(batch["tokens"], batch.get("valid"), rng)

    return forward


def _init(config: Config, task: Task) -> Callable[[Seed], TrainState]:
    transform = optimizer.make(config.optimizer, config.train.steps)

    def init(seed: Seed) -> TrainState:
        built = _build(config, task, nnx.Rngs(params=_stream(seed, "init")))
        params = nnx.to_pure_dict(nnx.state(built))
        return TrainState(params, transform.init(params), jnp.zeros((), jnp.int32))

    return jax.jit(init)


def _build(config: Config, task: Task, rngs: nnx.Rngs) -> model.Transformer:
    return model.build(config.model, settings.variant(config), task, rngs)


def _stream(seed: Seed, name: str) -> Array:
    # Initialisation and training draw from separate streams of one seed.
    return jax.random.fold_in(jax.random.key(seed), ("init", "step").index(name))
