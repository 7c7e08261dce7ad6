"""A score counts as learnt only if it is clearly better than what no look at the input gives."""

import pytest

from experiments import tasks
from experiments.chance import at_chance, trivial_score
from tests.experiments.tasks.test_listops import files


def test_shares_of_right_answers_by_their_standard_error():
    task = tasks.make("induction", vocab_size=11)  # chance .1
    assert at_chance(task, 0.1, 900) and at_chance(task, 0.129, 900) and at_chance(task, 0.05, 900)
    assert not at_chance(task, 0.131, 900)
    assert at_chance(task, 0.131, 100)


def test_other_metrics_by_a_hundredth():
    task = tasks.make("bytes")
    assert at_chance(task, 7.95, 1) and at_chance(task, 9.0, 1) and not at_chance(task, 7.9, 1)


def test_the_most_frequent_class_is_no_skill(tmp_path):
    folder = files(tmp_path, train=[("[MIN 1 2 ]", 1)] * 9, test=[("[MIN 1 2 ]", 1)] * 6 + [("8", 8)] * 4)
    task = tasks.make("listops", length=8, min_length=0, data_dir=str(folder))
    assert trivial_score(task) == pytest.approx(0.6)
    assert at_chance(task, 0.6, 1000) and not at_chance(task, 0.7, 1000)
