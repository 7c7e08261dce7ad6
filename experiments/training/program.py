"""The compiled programs of a cell: built once, shared by its seeds, of which several can train at once."""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from experiments import measure
from experiments.fields import Config
from experiments.tasks.task import Task
from experiments.training import data, layout, train

DETERMINISTIC = {"xla_gpu_deterministic_ops": True}  # a CPU's programs are so anyway

PROFILED = 3  # steps

_from_cache: list[str] = []  # a word for each program that jax found in its compilation cache
jax.monitoring.register_event_listener(
    lambda event, **_: _from_cache.append(event) if event == "/jax/compilation_cache/cache_hits" else None
)


@dataclasses.dataclass(frozen=True)
class Program:
    """Initialisation, training step and forward passes of a config, for `num_seeds` seeds at once.

    What they take and give has one leading axis for the seeds, but for the batch that is evaluated.
    `init`: seeds int32 -> the states before the first step.
    `train`: (states, batches, seeds int32, active bool) -> (states, metrics); the old states are donated, and
    those that are not active stay as they are.
    `evaluate[length]`: (parameters, batch) -> {metric: (sums, weights)}.
    `compile_seconds` and `memory` have the training step, the forward pass at the task's length, and those at
    its `eval_lengths`; `cached` names those that were not compiled but found in the compilation cache.
    """

    config: Config
    task: Task
    num_seeds: int
    abstract_state: Any
    init: jax.stages.Compiled
    train: jax.stages.Compiled
    evaluate: dict[int, jax.stages.Compiled]
    memory: dict[str, dict[str, int]]
    compile_seconds: dict[str, float]
    cached: tuple[str, ...] = ()


def build(config: Config, task: Task, num_seeds: int = 1) -> Program:
    """Compile for the config's shapes. Nothing is allocated on the device."""
    platform = jax.devices()[0].platform
    mesh = layout.mesh(config)
    compiled = {
        name: _compile(function, *inputs, options=options(config, platform))
        for name, (function, inputs) in functions(config, task, num_seeds, mesh).items()
    }
    init, programs = compiled.pop("init")[0], compiled
    return Program(
        config,
        task,
        num_seeds,
        abstract_state(config, task, num_seeds, mesh),
        init,
        programs["training_step"][0],
        {length: programs[forward_name(task, length)][0] for length in _lengths(task)},
        {name: measure.compiled_memory(compiled) for name, (compiled, _, _) in programs.items()},
        {name: seconds for name, (_, seconds, _) in programs.items()},
        tuple(name for name, (_, _, cached) in programs.items() if cached),
    )


def functions(
    config: Config, task: Task, num_seeds: int = 1, mesh: Mesh | None = None
) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """What there is to compile: jitted functions, and the shapes that each is for, by name.

    They are for the devices of `mesh`, which have the config's shape; None is one device here.
    """
    seeds, active = (jax.ShapeDtypeStruct((num_seeds,), dtype) for dtype in (jnp.int32, jnp.bool_))
    seeds, active = layout.copied(mesh, (seeds, active))
    state = abstract_state(config, task, num_seeds, mesh)
    batch = _for_seeds(data.abstract_batch(task, config.train.batch_size), num_seeds)
    batch = layout.of_batch(mesh, batch, leading=1)
    compiled_for = functools.partial(jax.jit, out_shardings=layout.everywhere(mesh))
    init = compiled_for(_over_seeds(functools.partial(train.init_state, config, task), num_seeds))
    step = compiled_for(
        _over_seeds(_if_active(train.train_step(config, task, mesh)), num_seeds), donate_argnums=0
    )
    found = {"init": (init, (seeds,)), "training_step": (step, (state, batch, seeds, active))}
    for length in _lengths(task):
        inputs = layout.of_batch(mesh, data.abstract_batch(task, config.eval.batch_size, length))
        forward = compiled_for(_over_seeds(train.eval_step(config, task, mesh), num_seeds, shared=(1,)))
        found[forward_name(task, length)] = forward, (state.params, inputs)
    return found


def options(config: Config, platform: str) -> dict[str, Any] | None:
    """Of the compiler, for a config on a platform."""
    return DETERMINISTIC if config.train.deterministic and platform == "gpu" else None


def _lengths(task: Task) -> tuple[int, ...]:
    return tuple(dict.fromkeys((task.length, *task.eval_lengths)))


def forward_name(task: Task, length: int) -> str:
    """Under which a record has the memory of the forward pass at a length."""
    return "forward" if length == task.length else f"forward_{length}"


def abstract_state(config: Config, task: Task, num_seeds: int, mesh: Mesh | None = None) -> Any:
    """Shapes and dtypes of the states of some seeds, on the devices of `mesh`."""
    return layout.copied(mesh, _for_seeds(train.abstract_state(config, task), num_seeds))


def _for_seeds(tree: Any, num_seeds: int) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_seeds, *x.shape), x.dtype), tree)


def _over_seeds(
    function: Callable[..., Any], num_seeds: int, shared: Sequence[int] = ()
) -> Callable[..., Any]:
    """`function` over the leading axis of its arguments, all but the `shared` ones."""
    if num_seeds > 1:
        return lambda *inputs: jax.vmap(function, [None if i in shared else 0 for i in range(len(inputs))])(
            *inputs
        )

    # One seed is not vmapped, which would turn a branch that is not taken into one whose result is not used.
    def alone(*inputs: Any) -> Any:
        inputs = tuple(
            x if i in shared else jax.tree.map(lambda leaf: leaf[0], x) for i, x in enumerate(inputs)
        )
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*inputs))

    return alone


def _if_active(step: Callable[..., Any]) -> Callable[..., Any]:
    def masked(state: Any, batch: Any, seed: Any, active: Any) -> Any:
        new, metrics = step(state, batch, seed)
        return jax.tree.map(lambda after, before: jnp.where(active, after, before), new, state), metrics

    return masked


def _compile(
    function: Any, *inputs: Any, options: dict[str, Any] | None
) -> tuple[jax.stages.Compiled, float, bool]:
    start, hits = time.perf_counter(), len(_from_cache)
    compiled = function.lower(*inputs).compile(options)
    return compiled, time.perf_counter() - start, len(_from_cache) > hits


def profile(built: Program, folder: Path) -> None:
    """Leave a trace of `PROFILED` warm training steps in the folder."""
    seed, everyone = np.zeros(1, np.int32), np.ones(1, bool)
    batches = data.train_iterator(built.task, 0, built.config.train.batch_size)
    stacked = [jax.tree.map(lambda x: x[None], next(batches)) for _ in range(1 + PROFILED)]
    state, _ = jax.block_until_ready(built.train(built.init(seed), stacked[0], seed, everyone))
    with jax.profiler.trace(str(folder)):
        for batch in stacked[1:]:
            state, _ = jax.block_until_ready(built.train(state, batch, seed, everyone))


def measured(
    config: Config, task: Task, built: Program, check: Callable[[], None]
) -> dict[str, dict[str, Any]]:
    """Speed and memory in use of `config.eval.timed_steps` warm training steps and as many forward passes.

    Each gets another batch of the training split, made before. On a GPU the programs that are timed are not
    the deterministic ones, and "speed" says so. `check` may raise, between two steps. Gives {"speed",
    "memory"}. A device's counter never falls: the forward pass, which needs less, comes first.
    """
    slow = config.train.deterministic and jax.devices()[0].platform == "gpu"
    if slow:
        fast = config.copy_and_resolve_references()
        with fast.unlocked():
            fast.train.deterministic = False
        built = build(fast, task)
    count, seed = config.eval.timed_steps + measure.WARM_UP, np.zeros(1, np.int32)
    state, everyone = built.init(seed), np.ones(1, bool)

    def step(batch: data.Batch) -> Any:
        nonlocal state
        check()
        state, metrics = built.train(state, batch, seed, everyone)
        return state, metrics

    def forward(batch: data.Batch) -> Any:
        check()
        return built.evaluate[task.length](state.params, batch)

    def batches(size: int) -> list[data.Batch]:
        return list(itertools.islice(data.train_iterator(task, 0, size), count))

    stacked = [jax.tree.map(lambda x: x[None], batch) for batch in batches(config.train.batch_size)]
    device = jax.devices()[0]
    forward_seconds, forward_memory = measure.watched(forward, batches(config.eval.batch_size), device)
    step_seconds, step_memory = measure.watched(step, stacked, device)
    spreads = {"training_step": measure.spread(step_seconds), "forward": measure.spread(forward_seconds)}
    tokens = config.train.batch_size * task.length / spreads["training_step"]["median"]
    return {
        "speed": {**spreads, "tokens_per_second": tokens, "unit": "s", "as_trained": not slow},
        "memory": {"training_step": step_memory, "forward": forward_memory},
    }
