"""What every registered task owes."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import tasks
from experiments.tasks import bytes as bytes_task
from experiments.tasks import listops, text
from experiments.tasks.task import ENDLESS, SPLITS
from experiments.training import data


@pytest.fixture(params=tasks.names())
def task(request, small_tasks):
    return tasks.make(request.param, **small_tasks.get(request.param, {}))


@pytest.mark.parametrize("split", SPLITS)
def test_an_item_has_the_declared_shapes_and_dtypes(task, split):
    source = task.source(split, seed=0)
    item = source[len(source) - 1]
    expected = {"tokens": np.int32, "targets": np.int32, "weights": np.float32}
    assert {field: array.dtype for field, array in item.items() if field != "valid"} == expected
    for field, array in item.items():
        per_token = field in ("tokens", "valid") or task.head == "token"
        assert array.shape == ((task.length,) if per_token else ())
    assert item["tokens"].min() >= 0 and item["tokens"].max() < task.vocab_size
    assert item["targets"].min() >= 0 and item["targets"].max() < task.num_outputs
    assert item["weights"].sum() > 0
    assert len(source) == task.splits[split]


def test_an_item_depends_on_split_seed_and_index_alone(task):
    def tokens(split, seed, index):
        return tuple(task.source(split, seed)[index]["tokens"])

    assert tokens("train", 0, 5) == tokens("train", 0, 5)
    others = {tokens("train", 0, 6), tokens("validation", 0, 5), tokens("test", 0, 5)}
    assert len({tokens("train", 0, 5), *others}) == 4
    # One that ends is the same for all seeds: they shuffle it differently.
    assert (tokens("train", 0, 5) == tokens("train", 1, 5)) == (task.splits["train"] < ENDLESS)
    for split in ("validation", "test"):
        assert tokens(split, 0, 3) == tokens(split, 1, 3)


def test_another_length_is_another_source(task):
    item = task.source("test", 0, length=2 * task.length)[0]
    assert item["tokens"].shape == (2 * task.length,)


def test_an_index_outside_of_a_split_is_refused(task):
    source = task.source("validation", 0)
    for index in (-1, len(source)):
        with pytest.raises(IndexError, match=str(index)):
            source[index]


def test_an_unknown_split_or_an_impossible_length_is_refused(task):
    with pytest.raises(ValueError, match=r"'dev'.*train, validation, test"):
        task.source("dev", 0)
    for split in SPLITS:
        with pytest.raises(ValueError, match="length=0"):
            task.source(split, 0, length=0)


def test_seeds_train_in_different_orders_and_every_item_is_read(task):
    def read(seed, number):
        batches = data.train_iterator(task, seed, 4)
        return [tuple(tokens) for _ in range(number) for tokens in next(batches)["tokens"]]

    assert read(0, 2) == read(0, 2) != read(1, 2)
    if task.splits["train"] < ENDLESS:
        size = task.splits["train"] // 4
        every = read(0, 2 * size)
        rest = len(every) // 2
        assert len(set(every[:rest])) == rest and every[:rest] != every[rest:]
        assert every[rest:] != read(1, size)  # a seed's next epoch is not its neighbour's first


def test_baselines_beat_chance(task):
    chance = task.chance[task.primary]
    for name, value in task.baselines().items():
        assert value < chance if task.better == "lower" else value >= chance, name


def test_a_uniform_answer_scores_chance(task):
    batch = {field: jnp.asarray(array[None]) for field, array in task.source("test", 0)[0].items()}
    logits = jnp.zeros((*batch["targets"].shape, task.num_outputs))
    for metric, (total, weight) in task.losses(logits, batch).items():
        assert weight == batch["weights"].sum()
        if metric != "accuracy":  # of equal logits argmax takes the first, which is no uniform draw
            assert total / weight >= task.chance[metric] - 1e-5


def test_a_right_answer_is_right(task):
    batch = {field: jnp.asarray(array[None]) for field, array in task.source("test", 0)[0].items()}
    logits = 100 * jnp.eye(task.num_outputs)[batch["targets"]]
    sums = {metric: float(total / weight) for metric, (total, weight) in task.losses(logits, batch).items()}
    assert sums["accuracy"] == 1 and sums["loss"] == 0


def test_the_content_hash_is_stable(task):
    before = task.content_hash()
    for made in (bytes_task.texts, listops.generated, text.reviews):
        made.cache_clear()
    assert dataclasses.replace(task).content_hash() == before


def test_wrong_names_and_fields_are_refused(as_users_run):
    with pytest.raises(ValueError, match=f"unknown task 'byte'; known are {', '.join(tasks.names())}"):
        tasks.make("byte")
    with pytest.raises(ValueError, match=r"no field 'lenght' \(did you mean 'length'"):
        tasks.make("bytes", lenght=3)
    for name in tasks.names():
        wrong = {"length": 0, "num_test": 1.5, "eval_lengths": (0,)}
        for field, value in wrong.items():
            if field not in tasks.hyperparameters(name):
                continue
            with pytest.raises(ValueError, match=f"{name}: {field}="):
                tasks.make(name, **{field: value})
