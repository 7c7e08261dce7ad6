from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.config.checks import SCHEDULES
from experiments.training import optimizer
from tests.experiments import small


def rates(*fields):
    config = small.load(
        "train.steps=100", "optimizer.learning_rate=0.5", "optimizer.warmup_steps=10", *fields
    )
    schedule = optimizer.schedule(config.optimizer, config.train.steps)
    return np.array([schedule(step) for step in range(101)])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_is_linear_to_the_highest(schedule):
    found = rates(f"optimizer.schedule={schedule}")
    assert np.allclose(found[:10], 0.05 * np.arange(1, 11))
    assert found.argmax() in (9, 10) and np.isclose(found[10], 0.5)


def test_what_follows_the_warm_up():
    cosine, rsqrt, constant = (rates(f"optimizer.schedule={name}") for name in SCHEDULES)
    assert np.isclose(cosine[55], 0.25) and np.isclose(cosine[100], 0, atol=1e-7)
    assert np.isclose(rsqrt[40], 0.25)
    assert (constant[10:] == 0.5).all()


def test_no_warm_up():
    assert (rates("optimizer.schedule=constant", "optimizer.warmup_steps=0") == 0.5).all()
    assert np.isclose(rates("optimizer.schedule=rsqrt", "optimizer.warmup_steps=0")[3], 0.25)


def update(params, grads, *fields) -> Any:
    config = small.load("optimizer.schedule=constant", "optimizer.warmup_steps=0", *fields)
    transform = optimizer.make(config.optimizer, config.train.steps)
    return transform.update(grads, transform.init(params), params)[0]


def test_matrices_decay_and_vectors_do_not():
    params = {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2)}
    zeros = jax.tree.map(jnp.zeros_like, params)
    found = update(params, zeros, "optimizer.learning_rate=0.5", "optimizer.weight_decay=0.1")
    assert np.allclose(found["kernel"], -0.05) and (found["bias"] == 0).all()


# A large eps makes Adam's step nearly proportional to the gradient, so that its length shows.
PROPORTIONAL = ("optimizer.eps=1e6", "optimizer.learning_rate=1", "optimizer.weight_decay=0")


def test_clipping_is_of_the_whole_gradient():
    params = {"a": jnp.zeros(1), "b": jnp.zeros(1)}
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    clipped, whole = (
        update(params, grads, *PROPORTIONAL, f"optimizer.clip_norm={norm}") for norm in (1.0, None)
    )
    assert np.allclose(clipped["a"] * 1e6, -0.6, rtol=1e-3)
    assert np.allclose(clipped["b"] * 1e6, -0.8, rtol=1e-3)
    assert np.allclose(whole["b"] * 1e6, -4.0, rtol=1e-3)


def test_l2_is_clipped_with_the_rest_of_the_gradient():
    params = {"a": jnp.zeros((1, 1)), "b": jnp.full((1, 1), 8.0)}
    grads = {"a": jnp.full((1, 1), 3.0), "b": jnp.zeros((1, 1))}
    found = update(params, grads, *PROPORTIONAL, "optimizer.l2=0.5", "optimizer.clip_norm=1.0")
    assert np.allclose(found["a"] * 1e6, -0.6, rtol=1e-3)
    assert np.allclose(found["b"] * 1e6, -0.8, rtol=1e-3)
