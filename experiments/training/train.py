"""Training and evaluation as pure functions of plain trees."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Int

from experiments.config import settings
from experiments.fields import Config
from experiments.model import transformer
from experiments.tasks.task import Task
from experiments.training import objective, optimizer
from experiments.training.data import Batch

Params = dict[str, Any]
Seed = int | np.integer | Int[Array, ""]
Metrics = dict[str, Array]


class TrainState(NamedTuple):
    """All that a training step changes."""

    params: Params  # nested dictionary, float32
    opt_state: optax.OptState
    step: Int[Array, ""]  # int32, how many were taken
    average: Params | None = None  # of the parameters, if optimizer.ema_decay asks for one

    @property
    def evaluated(self) -> Params:
        """The parameters that are validated and tested."""
        return self.params if self.average is None else self.average


def init_state(config: Config, task: Task, seed: Seed) -> TrainState:
    """The state before the first step."""
    return _init(config, task)(seed)


def abstract_state(config: Config, task: Task) -> TrainState:
    """Shapes and dtypes of the state; nothing is allocated."""
    return jax.eval_shape(_init(config, task), 0)


def train_step(config: Config, task: Task, mesh: Mesh | None = None) -> jax.stages.Wrapped:
    """(state, batch, seed int32) -> (state, metrics), compiled once for all seeds; the old state is donated.

    Metrics, scalars: `loss` (nats), `grad_norm` before clipping, `param_norm` after the step,
    `learning_rate`, and `entropy` (nats) where it is penalised. Dropout and the variant's draws come from
    (seed, step). The devices of `mesh` share batches and sequences; None is one device.
    """
    slope = gradient(config, task, mesh)
    transform = optimizer.make(config.optimizer, config.train.steps)
    learning_rate = optimizer.schedule(config.optimizer, config.train.steps)

    def step(state: TrainState, batch: Batch, seed: Seed) -> tuple[TrainState, Metrics]:
        rng = step_rng(seed, state.step)
        grads, reported = slope(state.params, batch, rng)
        updates, opt_state = transform.update(grads, state.opt_state, state.params)
        params: Any = optax.apply_updates(state.params, updates)
        average = optimizer.average(config.optimizer, state.average, params, state.step)
        metrics = reported | {
            "grad_norm": optax.tree.norm(grads),
            "param_norm": optax.tree.norm(params),
            "learning_rate": jnp.asarray(learning_rate(state.step), jnp.float32),
        }
        return TrainState(params, opt_state, state.step + 1, average), metrics

    return jax.jit(step, donate_argnums=0)


def eval_step(config: Config, task: Task, mesh: Mesh | None = None) -> jax.stages.Wrapped:
    """(params, batch) -> {metric: (sum, weight)} of the task, compiled once for each shape."""
    forward = _forward(config, task, mesh)
    return jax.jit(lambda params, batch: task.losses(forward(params, batch, None)[0], batch))


def step_rng(seed: Seed, step: Seed) -> Array:
    """For dropout and the variant's draws in a step."""
    return jax.random.fold_in(_stream(seed, "step"), step)


def gradient(
    config: Config, task: Task, mesh: Mesh | None = None
) -> Callable[[Params, Batch, Array], tuple[Params, Metrics]]:
    """(params, batch, rng) -> gradient of the objective, and what is reported; not compiled.

    Taken in `train.num_microbatches` parts.
    """
    forward, parts = _forward(config, task, mesh), config.train.num_microbatches

    def share(params: Params, part: Batch, whole: objective.Totals, rng: Array) -> tuple[Array, Metrics]:
        logits, entropy = forward(params, part, rng)
        return objective.objective(config, task, logits, entropy, part, whole)

    slope = jax.grad(share, has_aux=True)

    def of_batch(params: Params, batch: Batch, rng: Array) -> tuple[Params, Metrics]:
        whole = objective.totals(config, batch)
        if parts == 1:
            return slope(params, batch, whole, rng)
        split = {field: x.reshape(parts, -1, *x.shape[1:]) for field, x in batch.items()}

        def add(sums: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, slope(params, part[0], whole, part[1])), None

        every = split, jax.random.split(rng, parts)
        one = jax.eval_shape(
            lambda part: slope(params, part[0], whole, part[1]), jax.tree.map(lambda x: x[0], every)
        )
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)
        return jax.lax.scan(add, zero, every)[0]

    return of_batch


def _forward(
    config: Config, task: Task, mesh: Mesh | None
) -> Callable[[Params, Batch, Array | None], tuple[Array, Any]]:
    """Logits, and the sum of the entropies of all rows of attention weights where it is penalised."""
    model = graph(config, task, mesh)

    def forward(params: Params, batch: Batch, rng: Array | None) -> tuple[Array, Any]:
        built: Any = nnx.merge(model, params)
        inputs = batch["tokens"], batch.get("valid"), rng
        if not config.train.entropy_penalty:
            return built(*inputs), 0.0
        logits, kept = nnx.capture(built, nnx.Intermediate)(*inputs)
        return logits, sum(jax.tree.leaves(kept))

    return forward


def graph(config: Config, task: Task, mesh: Mesh | None = None) -> Any:
    """The model without its parameters, hashable: `nnx.merge` puts them together."""
    return nnx.split(nnx.eval_shape(lambda: _build(config, task, nnx.Rngs(0), mesh)))[0]


def _init(config: Config, task: Task) -> Callable[[Seed], TrainState]:
    transform = optimizer.make(config.optimizer, config.train.steps)

    def init(seed: Seed) -> TrainState:
        built = _build(config, task, nnx.Rngs(params=_stream(seed, "init")))
        params = nnx.to_pure_dict(nnx.state(built))
        average = None if config.optimizer.ema_decay is None else jax.tree.map(jnp.copy, params)
        return TrainState(params, transform.init(params), jnp.zeros((), jnp.int32), average)

    return jax.jit(init)


def _build(config: Config, task: Task, rngs: nnx.Rngs, mesh: Mesh | None = None) -> transformer.Transformer:
    with_entropy = config.train.entropy_penalty != 0
    shared = mesh if config.mesh.sequence > 1 else None
    return transformer.build(
        config.model, settings.mixers(config), task, rngs, with_entropy=with_entropy, mesh=shared
    )


def _stream(seed: Seed, name: str) -> Array:
    # Initialisation and training draw from separate streams of one seed.
    return jax.random.fold_in(jax.random.key(seed), ("init", "step").index(name))
