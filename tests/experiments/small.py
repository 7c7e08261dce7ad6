"""A config that compiles in a moment, its training step, and tasks whose data are there in one."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from configs import base
from experiments.config import settings
from experiments.training import data, train

BASE = str(Path(base.__file__))
TASKS = {  # fields of those that are slow at their defaults
    "recall": {"length": 16, "num_pairs": 4, "vocab_size": 16},
    "listops": {"length": 60, "min_length": 20, "num_train": 200, "num_validation": 40, "num_test": 40},
    "text": {"length": 64},
}
SIZE = (
    "model.num_layers=1", "model.num_heads=2", "model.model_dim=8", "model.head_dim=4", "model.mlp_dim=8",
    "model.conv_width=0", "train.batch_size=2", "train.steps=4",
    "optimizer.learning_rate=3e-3", "optimizer.warmup_steps=2",
)  # fmt: skip
FIELDS = (
    "attention.name=dense", "task.name=recall", *(f"task.{f}={v}" for f, v in TASKS["recall"].items()), *SIZE
)  # fmt: skip


def load(*fields: str):
    """The small config with more fields, "model.remat=True", changed."""
    return settings.load(BASE, [f"--config.{field}" for field in (*FIELDS, *fields)])


@functools.cache
def prepared(*fields: str):
    """The small config with more fields, its task and its training step."""
    config = load(*fields)
    task = settings.task(config)
    return config, task, train.train_step(config, task)


def trained(number: int, *fields: str, seed: int = 0, changed: Callable[[Any], Any] = lambda x: x) -> Any:
    """The state after so many steps, and the metrics of the last; each batch is `changed` first."""
    config, task, step = prepared(*fields)
    state, metrics = train.init_state(config, task, seed), {}
    batches = data.train_iterator(task, seed, config.train.batch_size)
    for _ in range(number):
        state, metrics = step(state, changed(next(batches)), np.int32(seed))
    return state, metrics
