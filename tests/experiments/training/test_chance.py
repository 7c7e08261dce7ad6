"""A score counts as learnt only if it is clearly better than what no look at the input gives."""

import pytest

from experiments import tasks
from experiments.training.chance import at_chance, trivial_score
from tests.experiments.tasks.test_listops import files


def test_shares_of_right_answers_by_their_standard_error():
    task = tasks.make("induction", vocab_size=11, num_test=900)  # chance .1
    assert at_chance(task, 0.1) and at_chance(task, 0.129) and at_chance(task, 0.05)
    assert not at_chance(task, 0.131)
    assert at_chance(tasks.make("induction", vocab_size=11, num_test=100), 0.131)


def test_the_standard_error_is_that_of_all_that_is_asked():
    task = tasks.make("recall", length=16, num_pairs=4, vocab_size=20, num_test=225)  # chance .1, 4 x 225
    assert task.chance["accuracy"] == 0.1
    assert at_chance(task, 0.129) and not at_chance(task, 0.131)


def test_other_metrics_by_a_hundredth_of_what_needs_no_context(tmp_path):
    task = tasks.make("bytes")
    unigram = trivial_score(task)
    assert unigram == task.baselines()["unigram"] < 8
    assert at_chance(task, 0.995 * unigram) and at_chance(task, 9.0) and not at_chance(task, 0.98 * unigram)


def test_the_most_frequent_class_is_no_skill(tmp_path):
    folder = files(tmp_path, train=[("[MIN 1 2 ]", 1)] * 9, test=[("[MIN 1 2 ]", 1)] * 6 + [("8", 8)] * 4)
    task = tasks.make("listops", length=8, min_length=0, data_dir=str(folder))
    assert trivial_score(task) == pytest.approx(0.6)
    assert at_chance(task, 0.6) and at_chance(task, 1.0) and not at_chance(task, 1.1)
