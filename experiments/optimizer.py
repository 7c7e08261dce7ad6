"""AdamW, its schedule, and clipping."""

import jax
import jax.numpy as jnp
import optax

from experiments.config import Config

SCHEDULES = ("cosine", "rsqrt", "constant")


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
    """Clipping by the global norm, then AdamW. Vectors (biases, norms) do not decay."""
    parts = [] if optimizer.clip_norm is None else [optax.clip_by_global_norm(optimizer.clip_norm)]
    adamw = optax.adamw(
        schedule(optimizer, steps),
        b1=optimizer.beta1,
        b2=optimizer.beta2,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        mask=lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params),
    )
    return optax.chain(*parts, adamw)
