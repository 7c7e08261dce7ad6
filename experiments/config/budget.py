"""Equal analytic FLOPs: how many steps a number of operations pays for."""

from collections.abc import Sequence

import jax
from flax import nnx

from experiments.config.checks import MOST, refuse
from experiments.fields import Config
from experiments.model import cost, transformer
from experiments.model.registry import Mixer
from experiments.tasks.task import Task


def step_flops(config: Config, mixers: Sequence[Mixer], task: Task) -> int:
    """Operations of matrix products in one training step of the whole batch, as `cost.flops` counts them."""

    def params() -> dict:
        return nnx.to_pure_dict(nnx.state(transformer.build(config.model, mixers, task, nnx.Rngs(0))))

    counted = cost.flops(config, mixers, task, jax.eval_shape(params))
    return config.train.batch_size * counted["training"]


def steps(config: Config, mixers: Sequence[Mixer], task: Task) -> int:
    """`train.steps`, or where there is `train.flops`, as many as it pays for.

    Raises UsageError if it pays for none, or for more than can be counted.
    """
    if config.train.flops is None:
        return config.train.steps
    one = step_flops(config, mixers, task)
    affordable = int(config.train.flops // one)
    if not 1 <= affordable <= MOST:
        accepted = f"at least {one}, one training step, and at most {MOST} times as many"
        refuse("train.flops", config.train.flops, accepted)
    return affordable
