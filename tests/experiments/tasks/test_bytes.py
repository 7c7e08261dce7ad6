import itertools

import numpy as np
import pytest

from experiments import tasks
from experiments.tasks.bytes import texts


@pytest.fixture
def folder(tmp_path):
    for index in range(60):
        path = tmp_path / f"package{index % 7}" / f"module{index}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"import %d\n" % index * 10)
    return tmp_path


def test_targets_are_the_next_bytes():
    item = tasks.make("bytes", length=40).source("test", 0)[3]
    assert (item["tokens"][1:] == item["targets"][:-1]).all()
    assert (item["weights"] == 1).all()


def test_every_file_is_in_one_split(folder):
    parts = [set(text.tobytes().split(b"\0")) - {b""} for text in texts(str(folder)).values()]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 60


def test_what_is_installed_or_generated_is_left_out(folder):
    before = tasks.make("bytes", data_dir=str(folder)).content_hash()
    texts.cache_clear()
    (folder / "site-packages").mkdir()
    (folder / "site-packages" / "other.py").write_text("other")
    (folder / "_sysconfigdata__linux.py").write_text("paths")
    assert tasks.make("bytes", data_dir=str(folder)).content_hash() == before
    texts.cache_clear()
    (folder / "more.py").write_text("more")
    assert tasks.make("bytes", data_dir=str(folder)).content_hash() != before


def test_held_out_items_are_spread_evenly(folder):
    text = texts(str(folder))["test"]
    task = tasks.make("bytes", data_dir=str(folder), length=8, num_test=4)
    source = task.source("test", 0)
    assert (source[0]["tokens"] == text[:8]).all()
    assert (source[2]["tokens"] == text[(text.size - 8) // 2 :][:8]).all()
    assert len(task.source("test", 0, length=16)) == 2  # as many bytes


def test_baselines_are_those_of_a_count_by_hand(folder):
    task = tasks.make("bytes", data_dir=str(folder), length=16, num_test=3)
    train, source = texts(str(folder))["train"], task.source("test", 0)
    counts = np.full((256, 256), 0.5)
    for before, after in itertools.pairwise(train):
        counts[before, after] += 1
    bits = [
        -np.log2(counts[before, after] / counts[before].sum())
        for item in map(source.__getitem__, range(3))
        for before, after in zip(item["tokens"], item["targets"], strict=True)
    ]
    assert np.isclose(task.baselines()["bigram"], np.mean(bits))


def test_simple_baselines_rank_as_they_should():
    found = tasks.make("bytes").baselines()
    assert found["lzma"] < found["zlib"] < found["bigram"] < found["unigram"] < 8


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no \.py file"):
        tasks.make("bytes", data_dir=str(tmp_path)).source("train", 0)
    with pytest.raises(ValueError, match="data_dir='/nowhere'"):
        tasks.make("bytes", data_dir="/nowhere")
