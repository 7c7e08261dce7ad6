"""AdamW, its schedule, L2, clipping, and the average of the parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from experiments.fields import Config


def schedule(optimizer: Config, steps: int) -> optax.Schedule:
    """Learning rate by step: linear warm-up over `warmup_steps` to `learning_rate`, then

    "cosine": down to 0 at `steps`; "rsqrt": proportional to 1/sqrt(step); "constant": as it is.
    """
    peak, warmup = optimizer.learning_rate, optimizer.warmup_steps
    # Counted from the end of the warm-up; asked, and not used, before it too.
    after = {
        "cosine": optax.cosine_decay_schedule(peak, max(steps - warmup, 1)),
        "rsqrt": lambda count: peak * jnp.sqrt(max(warmup, 1) / (jnp.maximum(count, 0) + max(warmup, 1))),
        "constant": optax.constant_schedule(peak),
    }[optimizer.schedule]
    if not warmup:
        return after
    # Step 0 already learns: 1/warmup of the peak, not 0.
    rising = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
    return optax.join_schedules([rising, after], [warmup])


def make(optimizer: Config, steps: int) -> optax.GradientTransformation:
    """The gradient of L2, clipping by the global norm, then AdamW. Vectors (biases, norms) do not decay.

    L2 adds l2 * w to the gradient, which Adam then rescales; weight_decay takes learning_rate * weight_decay
    * w off beside it (Loshchilov and Hutter 2019).
    """
    parts = [optax.add_decayed_weights(optimizer.l2, _matrices)] if optimizer.l2 else []
    if optimizer.clip_norm is not None:
        parts.append(optax.clip_by_global_norm(float(optimizer.clip_norm)))
    adamw = optax.adamw(
        schedule(optimizer, steps),
        b1=optimizer.beta1,
        b2=optimizer.beta2,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        mask=_matrices,
    )
    return optax.chain(*parts, adamw)


def average(optimizer: Config, old: Any, params: Any, step: Int[Array, ""]) -> Any:
    """The average of the parameters once `params` follow step `step`; None if there is no `ema_decay`.

    Their plain mean at first, until 1 / (step + 1) falls below 1 - ema_decay: nothing of the first, untrained
    parameters stays for long.
    """
    if optimizer.ema_decay is None:
        return None
    share = jnp.maximum(1 - optimizer.ema_decay, 1 / (step + 1))
    return optax.incremental_update(params, old, share)


def _matrices(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)
