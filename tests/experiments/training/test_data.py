import json

import jax
import numpy as np
import pytest

from experiments import tasks
from experiments.training import data

TASK = tasks.make("recall", length=16, num_pairs=4, vocab_size=16, num_validation=7)


def same(batch, other):
    assert batch.keys() == other.keys()
    assert all((batch[field] == other[field]).all() for field in batch)


def test_training_batches_are_the_items_in_order():
    source, iterator = TASK.source("train", 5), data.train_iterator(TASK, 5, 3)
    for start in (0, 3):
        items = [source[start + place] for place in range(3)]
        same(next(iterator), {field: np.stack([item[field] for item in items]) for field in items[0]})


def test_a_fresh_iterator_continues_from_a_saved_state():
    iterator = data.train_iterator(TASK, 0, 3)
    for _ in range(4):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    expected = [next(iterator) for _ in range(3)]
    resumed = data.train_iterator(TASK, 0, 3)
    resumed.set_state(state)
    for batch in expected:
        same(next(resumed), batch)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 10])
def test_every_held_out_item_counts_once(batch_size):
    batches = list(data.eval_batches(TASK, "validation", batch_size))
    assert {len(batch["tokens"]) for batch in batches} == {batch_size}
    joined = {field: np.concatenate([batch[field] for batch in batches]) for field in batches[0]}
    source = TASK.source("validation", 0)
    for index in range(7):
        same({field: array[index] for field, array in joined.items()}, source[index])
    assert joined["weights"][7:].sum() == 0


@pytest.mark.parametrize("name", tasks.names())
def test_the_abstract_batch_describes_the_real_ones(name, small_tasks):
    task = tasks.make(name, **small_tasks.get(name, {}))
    for length in (None, task.length + 8):
        batch = next(data.eval_batches(task, "validation", 3, length))
        described = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
        assert data.abstract_batch(task, 3, length) == described
