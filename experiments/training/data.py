"""Batches of a task."""

from collections.abc import Iterator
from typing import Any

import grain
import jax
import numpy as np

from experiments.tasks.task import ENDLESS, Task

Batch = dict[str, Any]


def train_iterator(task: Task, seed: int, batch_size: int) -> grain.DatasetIterator[Batch]:
    """Training batches without end, in an order that `seed` decides, read ahead by a thread.

    Items of a split that ends are shuffled, anew each time that all were read.
    `get_state()` is JSON; `set_state` on a fresh iterator continues with the batch that would have come next.
    """
    items = task.source("train", seed)
    source = grain.MapDataset.source(items)
    if len(items) < ENDLESS:
        # Grain shuffles epoch e by seed + e: plain seeds would share their orders, one epoch apart.
        source = source.shuffle(int(np.random.SeedSequence(seed).generate_state(1)[0]) // 2).repeat()
    read = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2 * batch_size)
    return iter(source.to_iter_dataset(read).batch(batch_size, drop_remainder=True))


def eval_batches(task: Task, split: str, batch_size: int, length: int | None = None) -> Iterator[Batch]:
    """All of a fixed split, in order. The last batch is filled up with items of weight 0."""
    source = task.source(split, 0, length)
    for start in range(0, len(source), batch_size):
        rest = range(start, min(start + batch_size, len(source)))
        items = [source[index] for index in rest]
        blank = {**items[-1], "weights": np.zeros_like(items[-1]["weights"])}
        items += [blank] * (batch_size - len(items))
        yield {field: np.stack([item[field] for item in items]) for field in blank}


def abstract_batch(task: Task, batch_size: int, length: int | None = None) -> Batch:
    """Shapes and dtypes of a batch. The data need not be there."""
    tokens = (batch_size, task.length if length is None else length)
    scored = tokens if task.head == "token" else tokens[:1]
    fields = {"tokens": (tokens, np.int32), "targets": (scored, np.int32), "weights": (scored, np.float32)}
    if task.pads:
        fields["valid"] = tokens, np.bool_
    return {field: jax.ShapeDtypeStruct(shape, dtype) for field, (shape, dtype) in fields.items()}
