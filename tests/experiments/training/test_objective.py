"""What training lowers, by hand; and that accumulated gradients are those of the whole batch."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.config import settings
from experiments.training import objective, optimizer
from tests.experiments import small

LOGITS = jnp.log(jnp.array([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]]))
BATCH = {"tokens": jnp.zeros((1, 2)), "targets": jnp.array([[0, 1]]), "weights": jnp.array([[1.0, 3.0]])}


def value(*fields, entropy=0.0):
    config = small.load(*fields)
    task, whole = settings.task(config), objective.totals(config, BATCH)
    found, reported = objective.objective(config, task, LOGITS, entropy, BATCH, whole)
    return float(found), {name: float(each) for name, each in reported.items()}


def test_the_loss_is_the_weighted_mean():
    by_hand = (np.log(2) + 3 * np.log(10)) / 4
    assert value() == (pytest.approx(by_hand), {"loss": pytest.approx(by_hand)})


def test_label_smoothing_mixes_in_the_uniform_distribution():
    plain, uniform = value()[0], -(np.log([0.5, 0.25, 0.25]).mean() + 3 * np.log([0.1, 0.1, 0.8]).mean()) / 4
    found, reported = value("train.label_smoothing=0.2")
    assert found == pytest.approx(0.8 * plain + 0.2 * uniform) and reported["loss"] == pytest.approx(plain)


def test_the_penalty_is_on_the_mean_entropy():
    found, reported = value("train.entropy_penalty=0.5", entropy=6.0)  # 2 tokens x 2 heads x 1 layer
    assert reported["entropy"] == pytest.approx(1.5) and found == pytest.approx(value()[0] + 0.75)


def trained(steps, *fields, **changes):
    return small.trained(steps, "train.batch_size=4", *fields, **changes)


def uneven(batch):
    """Each row has fewer tokens than the one before, and heavier targets."""
    rows, length = batch["tokens"].shape
    row = np.arange(rows, dtype=np.float32)[:, None]
    valid = np.arange(length) < length - 2 * row
    return batch | {"valid": valid, "weights": batch["weights"] * valid * (1 + row)}


def test_parts_of_a_batch_give_the_gradient_of_the_whole():
    fields = ("train.entropy_penalty=0.1", "train.label_smoothing=0.1", "optimizer.eps=1.0")
    whole, parts = (
        trained(2, *fields, f"train.num_microbatches={number}", changed=uneven) for number in (1, 4)
    )
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_penalty_lowers_the_entropy_and_its_opposite_raises_it():
    sharp, plain, flat = (
        trained(40, f"train.entropy_penalty={c}", "train.steps=40", "optimizer.learning_rate=0.03")[1][
            "entropy"
        ]
        for c in (1.0, 1e-9, -1.0)
    )
    assert sharp < plain - 0.05 < plain + 0.05 < flat


def test_the_entropy_is_had_through_rematerialisation_too():
    kept, again = (
        trained(1, "train.entropy_penalty=0.1", f"model.remat={flag}")[1] for flag in (False, True)
    )
    assert kept["entropy"] == pytest.approx(float(again["entropy"]), rel=1e-5)
    assert kept["grad_norm"] == pytest.approx(float(again["grad_norm"]), rel=1e-4)


def test_the_average_is_a_mean_that_forgets():
    config = small.load("optimizer.ema_decay=0.75").optimizer
    average, weights = jnp.zeros(()), jnp.array([4.0, 8.0, 3.0, 1.0, 9.0, 2.0])
    means = []
    for step, weight in enumerate(weights):
        average = optimizer.average(config, average, weight, jnp.int32(step))
        means.append(float(average))
    assert means[:4] == pytest.approx([4, 6, 5, 4]) and means[4] == pytest.approx(0.75 * 4 + 0.25 * 9)
    assert optimizer.average(small.load().optimizer, None, weights, jnp.int32(3)) is None


def test_what_is_evaluated_is_the_average():
    state, _ = trained(3, "optimizer.ema_decay=0.9")
    assert state.evaluated is state.average
    ours, theirs = (np.asarray(tree["output"]["kernel"]) for tree in (state.average, state.params))
    assert not np.allclose(ours, theirs)
    plain, _ = trained(3)
    assert plain.average is None and plain.evaluated is plain.params
    np.testing.assert_array_equal(plain.params["output"]["kernel"], theirs)  # it does not change the training


def test_l2_is_in_the_gradient_and_decay_beside_it():
    params = {"kernel": jnp.full((1, 1), 2.0), "bias": jnp.full(1, 2.0)}

    def update(*fields):
        constant = ("optimizer.schedule=constant", "optimizer.warmup_steps=0", "optimizer.learning_rate=1")
        config = small.load(*constant, "optimizer.clip_norm=None", "optimizer.eps=1e6", *fields)
        transform = optimizer.make(config.optimizer, 10)
        zeros = jax.tree.map(jnp.zeros_like, params)
        found: Any = transform.update(zeros, transform.init(params), params)[0]
        return {name: float(each.squeeze()) for name, each in found.items()}

    l2 = update("optimizer.l2=0.5", "optimizer.weight_decay=0")  # Adam with a large eps: the gradient / eps
    assert l2 == {"kernel": pytest.approx(-0.5 * 2 / 1e6, rel=1e-3), "bias": 0.0}
    decay = update("optimizer.weight_decay=0.5")
    assert decay == {"kernel": pytest.approx(-0.5 * 2), "bias": 0.0}
