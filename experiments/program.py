"""The compiled programs of a cell: built once and shared by all its seeds."""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import data, measure, train
from experiments.config import Config
from experiments.tasks.task import Task


@dataclasses.dataclass(frozen=True)
class Program:
    """Initialisation, training step and forward pass of a config.

    `init`: seed int32 scalar -> the state before the first step.
    `train`: (state, batch, seed int32 scalar) -> (state, metrics); the state is donated.
    `evaluate(length)`: the compiled (params, batch) -> {metric: (sum, weight)}, for one length.
    """

    config: Config
    task: Task
    abstract_state: Any
    init: jax.stages.Compiled
    train: jax.stages.Compiled
    evaluate: Callable[[int], jax.stages.Compiled]
    memory: dict[str, dict[str, int]]
    compile_seconds: dict[str, float]


def build(config: Config, task: Task) -> Program:
    """Compile for the config's shapes. Nothing is allocated on the device."""
    state = train.abstract_state(config, task)
    batch = data.abstract_batch(task, config.train.batch_size)
    seed = jax.ShapeDtypeStruct((), jnp.int32)
    init, _ = _compile(jax.jit(functools.partial(train.init_state, config, task)), seed)
    step, step_seconds = _compile(train.train_step(config, task), state, batch, seed)

    @functools.cache
    def evaluate(length: int) -> jax.stages.Compiled:
        inputs = data.abstract_batch(task, config.eval.batch_size, length)
        return _compile(train.eval_step(config, task), state.params, inputs)[0]

    start = time.perf_counter()
    forward = evaluate(task.length)
    return Program(
        config,
        task,
        state,
        init,
        step,
        evaluate,
        {"training_step": measure.compiled_memory(step), "forward": measure.compiled_memory(forward)},
        {"training_step": step_seconds, "forward": time.perf_counter() - start},
    )


def _compile(function: Any, *inputs: Any) -> tuple[jax.stages.Compiled, float]:
    start = time.perf_counter()
    return function.lower(*inputs).compile(), time.perf_counter() - start


def measured(program: Program, seed: int, check: Callable[[], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Speed, and peak memory, of `config.eval.timed_steps` warm training steps and forward passes.

    Each step gets another batch of the task. `check` may raise, between two steps.
    """
    config, task, count = program.config, program.task, program.config.eval.timed_steps
    batches = data.train_iterator(task, seed, config.train.batch_size)
    state = program.init(np.int32(seed))
    seconds: dict[str, list[float]] = {}

    def step(batch: data.Batch) -> Any:
        nonlocal state
        check()
        state, metrics = program.train(state, batch, np.int32(seed))
        return state, metrics

    def forward(batch: data.Batch) -> Any:
        check()
        return program.evaluate(task.length)(state.params, batch)

    def both() -> None:
        seconds["training_step"] = measure.times(step, itertools.islice(batches, count + measure.WARM_UP))
        validation = itertools.cycle(data.eval_batches(task, "validation", config.eval.batch_size))
        seconds["forward"] = measure.times(forward, itertools.islice(validation, count + measure.WARM_UP))

    peak = measure.measured_peak(both, jax.devices()[0])
    speed: dict[str, Any] = {name: measure.spread(values) for name, values in seconds.items()}
    tokens = config.train.batch_size * task.length
    return speed | {"tokens_per_second": tokens / speed["training_step"]["median"], "unit": "s"}, peak
