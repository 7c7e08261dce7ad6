"""Equal analytic FLOPs: what decides the number of steps."""

import pytest

from experiments.config import budget, settings
from experiments.model import cost
from experiments.training import train
from tests.experiments import small


@pytest.mark.parametrize("name", ["full", "window"])
def test_steps_are_as_many_as_the_flops_pay_for(name):
    config = small.load(f"attention.name={name}")
    task, mixers = settings.task(config), settings.mixers(config)
    counted = cost.flops(config, mixers, task, train.abstract_state(config, task).params)
    one = counted["training"] * config.train.batch_size
    assert budget.step_flops(config, mixers, task) == one
    for flops, steps in ((7 * one, 7), (8 * one - 1, 7), (8.5 * one, 8)):
        bought = small.load(f"attention.name={name}", f"train.flops={flops}", "train.steps=3")
        assert bought.train.steps == steps and budget.steps(bought, mixers, task) == steps


def test_cheaper_attention_gets_more_steps_and_cells_keep_their_identity_without():
    flops = "train.flops=1e9"
    full, near = (
        small.load(*each, flops)
        for each in (["attention.name=full"], ["attention.name=window", "attention.window_size=2"])
    )
    assert near.train.steps > full.train.steps
    assert settings.identity(small.load("train.flops=None")) == settings.identity(small.load())
    assert settings.identity(full) != settings.identity(
        small.load("attention.name=full", f"train.steps={full.train.steps}")
    )
