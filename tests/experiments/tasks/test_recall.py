import numpy as np
import pytest

from experiments import tasks
from experiments.tasks.recall import Recall


def test_the_sample_in_the_docstring_is_one():
    item = tasks.make("recall", length=12, num_pairs=2, vocab_size=10).source("test", 0)[0]
    tokens = " ".join(map(str, item["tokens"]))
    asked = zip(item["targets"], item["weights"], strict=True)
    targets = " ".join(str(target) if weight else "." for target, weight in asked)
    assert f"tokens   {tokens}\n        targets  {targets}\n" in (Recall.__doc__ or "")


@pytest.mark.parametrize("length", [128, 200])
def test_every_key_is_asked_once_and_its_value_is_the_target(length):
    task = tasks.make("recall")
    for index in range(20):
        item = task.source("train", 3, length)[index]
        keys, values = item["tokens"][:64:2], item["tokens"][1:64:2]
        assert len(set(keys)) == len(set(values)) == 32
        assert keys.min() >= 1 and keys.max() < 128 <= values.min() and values.max() < 256
        asked = np.flatnonzero(item["weights"])
        assert len(asked) == 32 and asked.min() >= 64 and (asked % 2 == 0).all()
        value_of = dict(zip(keys, values, strict=True))
        assert [value_of[key] for key in item["tokens"][asked]] == list(item["targets"][asked])
        assert sorted(item["tokens"][asked]) == sorted(keys)


def test_a_small_power_asks_early():
    def mean_place(power):
        source = tasks.make("recall", length=256, num_pairs=4, power=power).source("train", 0)
        return np.mean([np.flatnonzero(source[index]["weights"]) for index in range(200)])

    assert mean_place(0.01) < 70 < 120 < mean_place(1.0) < 145


def test_the_number_of_pairs_must_fit():
    with pytest.raises(ValueError, match="length=100 is not accepted; length must be an int of at least 128"):
        tasks.make("recall", length=100)
    with pytest.raises(ValueError, match="vocab_size=32 is not accepted; vocab_size must be at least 2 num"):
        tasks.make("recall", vocab_size=32)
    with pytest.raises(ValueError, match="power=0"):
        tasks.make("recall", power=0)
