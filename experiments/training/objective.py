"""What training lowers: the task's loss, label smoothing, and a penalty on the entropy of the attention."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from experiments.fields import Config
from experiments.tasks.task import Task
from experiments.training.data import Batch


class Totals(NamedTuple):
    """What the sums over a whole batch are divided by, however many parts it is taken in."""

    weight: Any  # of the targets
    rows: Any  # of attention weights: real tokens, times heads and layers


def totals(config: Config, batch: Batch) -> Totals:
    """Of a batch."""
    tokens = batch["valid"].sum() if "valid" in batch else batch["tokens"].size
    return Totals(batch["weights"].sum(), tokens * config.model.num_heads * config.model.num_layers)


def objective(
    config: Config,
    task: Task,
    logits: Float[Array, "*batch O"],
    entropy: Float[Array, ""] | float,
    part: Batch,
    whole: Totals,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """A part's share of what is lowered, and its shares of what is reported.

    (1 - e) loss + e uniform + c entropy: `loss` is the task's, in nats; e is `train.label_smoothing` and
    uniform the cross-entropy with the uniform distribution (Szegedy et al. 2016); c is
    `train.entropy_penalty` and entropy the mean over rows of attention weights, in nats. `entropy` is their
    sum over the part.
    """
    total, _ = task.losses(logits, part)["loss"]
    reported = {"loss": total / whole.weight}
    lowered = reported["loss"]
    if smoothing := config.train.label_smoothing:
        log_p = jax.nn.log_softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))
        uniform = -(log_p.mean(-1) * part["weights"]).sum() / whole.weight
        lowered = (1 - smoothing) * lowered + smoothing * uniform
    if penalty := config.train.entropy_penalty:
        reported["entropy"] = entropy / whole.rows
        lowered = lowered + penalty * reported["entropy"]
    return lowered, reported
