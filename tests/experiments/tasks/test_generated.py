"""Induction and selective copying: their samples, and what must hold for every item."""

import hashlib

import numpy as np
import pytest

from experiments import tasks
from experiments.tasks.induction import Induction
from experiments.tasks.selective_copy import SelectiveCopy


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Induction, {"length": 8, "vocab_size": 10}),
        (SelectiveCopy, {"length": 10, "num_tokens": 3, "vocab_size": 8}),
    ],
)
def test_the_sample_in_the_docstring_is_one(kind, fields):
    item = kind(**fields).source("test", 0)[0]
    asked = zip(item["targets"], item["weights"], strict=True)
    targets = " ".join(str(target) if weight else "." for target, weight in asked)
    tokens = " ".join(map(str, item["tokens"]))
    assert f"tokens   {tokens}\n        targets  {targets}\n" in (kind.__doc__ or "")


@pytest.mark.parametrize("length", [3, 4, 64])
def test_induction_asks_what_followed_the_trigger(length):
    source = tasks.make("induction", length=3).source("train", 1, length)
    places = set()
    for index in range(50):
        item = source[index]
        (first, last) = np.flatnonzero(item["tokens"] == 0)
        assert last == length - 1 and item["targets"][last] == item["tokens"][first + 1] != 0
        assert np.flatnonzero(item["weights"]).tolist() == [last]
        places.add(first)
    assert min(places) == 0 and max(places) <= length - 3


@pytest.mark.parametrize("length", [32, 100])
def test_selective_copy_asks_for_the_tokens_in_their_order(length):
    source = tasks.make("selective_copy", length=32).source("validation", 0, length)
    for index in range(50):
        item = source[index]
        said = item["tokens"][: length - 16]
        assert (item["tokens"][-16:] == 1).all() and (item["weights"] == [0] * (length - 16) + [1] * 16).all()
        assert said[said != 0].tolist() == item["targets"][-16:].tolist()
        assert said.max() < 16 and 1 not in said


def test_too_short_is_refused():
    with pytest.raises(ValueError, match="length=2 is not accepted"):
        tasks.make("induction", length=2)
    with pytest.raises(ValueError, match="length=31 is not accepted"):
        tasks.make("selective_copy", length=31)
    with pytest.raises(ValueError, match="length=31 is not accepted"):
        tasks.make("selective_copy").source("test", 0, 31)


def test_the_hash_is_of_the_first_items_of_each_split_at_the_tasks_length():
    found, usual = hashlib.sha256(), tasks.make("induction", length=8)
    for split in ("train", "validation", "test"):
        for index in range(64):
            item = usual.source(split, 0)[index]
            found.update(item["tokens"].tobytes() + item["targets"].tobytes())
    more = tasks.make("induction", length=8, num_validation=64, num_test=2000, eval_lengths=(16,))
    assert usual.content_hash() == more.content_hash() == found.hexdigest()
    others = [{"length": 9}, {"length": 8, "vocab_size": 15}, {"length": 8, "num_test": 63}]
    hashes = {tasks.make("induction", **fields).content_hash() for fields in others}
    assert len({usual.content_hash(), *hashes}) == 4
