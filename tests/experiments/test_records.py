"""Records are atomic and plain JSON; the course of a run survives a cut and a rewind."""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import files, records


def test_record_holds_python_numbers_and_flags_what_is_not_finite(tmp_path):
    record = {
        "a": np.float32(0.5),
        "b": jnp.float32(jnp.nan),
        "c": {3: (1, np.int64(2), -np.inf)},
        "d": [None, True, "x"],
    }
    records.write_record(tmp_path, record)
    text = (tmp_path / "record.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": 0.5,
        "b": None,
        "c": {"3": [1, 2, None]},
        "d": [None, True, "x"],
        "non_finite": {"b": "nan", "c.3.2": "-inf"},
    }
    assert records.read_record(tmp_path) == json.loads(text)


def test_a_failed_write_leaves_the_record_as_it_was(tmp_path, monkeypatch):
    records.write_record(tmp_path, {"a": 1})
    with pytest.raises(TypeError):
        records.write_record(tmp_path, {"a": object()})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        records.write_record(tmp_path, {"a": 2})
    assert records.read_record(tmp_path) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_find_names_what_it_cannot_read(tmp_path):
    for name, text in [("good", '{"a": 1}'), ("torn", '{"a"'), ("list", "[]")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(text)
    (tmp_path / "empty").mkdir()
    found, complaints = records.find(tmp_path)
    assert found == [(tmp_path / "good", {"a": 1})]
    assert (
        len(complaints) == 2 and "list/record.json" in complaints[0] and "torn/record.json" in complaints[1]
    )
    assert records.read_record(tmp_path / "empty") is None
    assert records.find(tmp_path / "nowhere") == ([], [])


def test_timings_are_left_out_and_nothing_else():
    record = {
        "speed": 1,
        "memory": {"measured": 2, "planned": 3},
        "seeds": {"0": {"timing": 4, "score": 5}, "1": {"outcome": "diverged"}},
        "timings": list(records.TIMINGS),
    }
    kept = records.without_timings(record)
    assert kept == {
        "memory": {"planned": 3},
        "seeds": {"0": {"score": 5}, "1": {"outcome": "diverged"}},
        "timings": list(records.TIMINGS),
    }
    assert record["speed"] == 1 and record["seeds"]["0"]["timing"] == 4


def test_metrics_rewind_by_split_and_lose_a_torn_tail(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert records.rewind(path, {"train": 10}, 0) == []
    assert records.read(path) == [] and not path.exists()
    for step in (10, 20, 30):
        records.append(
            path, {"step": step, "split": "train", "loss": float("nan") if step == 10 else step / 3}
        )
        records.append(path, {"step": step, "split": "validation"})
    with open(path, "a") as file:
        file.write('{"step": 40, "lo')
    assert [line["step"] for line in records.read(path)] == [10, 10, 20, 20, 30, 30]
    assert records.rewind(path, {"train": 20, "validation": 10}, 3) == []
    records.append(path, {"step": 30, "split": "train", "loss": 10.0})
    assert records.read(path) == [
        {"step": 10, "split": "train", "loss": None, "non_finite": {"loss": "nan"}},
        {"step": 10, "split": "validation"},
        {"step": 20, "split": "train", "loss": 20 / 3},
        {"step": 30, "split": "train", "loss": 10.0},
    ]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for broken in (
        "broken", "5", '{"split": "train"}', '{"step": 1, "split": []}',
        '{"step": 1, "split": "train", "loss": NaN}', "[" * 100_000,
    ):  # fmt: skip
        path.write_text(f'{{"step": 1, "split": "train"}}\n{broken}\n{{"step": 2, "split": "train"}}\n')
        before = path.read_bytes()
        with pytest.raises(ValueError, match=r"metrics.jsonl:2"):
            records.read(path)
        (complaint,) = records.rewind(path, {"train": 9}, 1)
        assert "metrics.jsonl:2" in complaint
        assert records.read(path) == [{"step": 1, "split": "train"}]
        (aside,) = tmp_path.glob("metrics.jsonl.damaged-*")
        assert aside.read_bytes() == before and aside.name in complaint
        aside.unlink()


def test_lost_lines_are_noticed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    (complaint,) = records.rewind(path, {"train": 10}, 2)
    assert f"{path} has 0 lines up to there, and had 2" in complaint and not path.exists()
    records.append(path, {"step": 10, "split": "train"})
    (complaint,) = records.rewind(path, {"train": 10}, 2)
    assert "has 1 lines up to there, and had 2" in complaint and len(records.read(path)) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema": 2}', "is not a record: there is no name"),
        ("[]", "is not a record"),
        ("[" * 100_000, "is not JSON: nested too deeply"),
    ],
)
def test_a_record_without_its_parts_is_named(tmp_path, text, words):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text(text)
    found, (complaint,) = records.find(tmp_path)
    assert not found and complaint.startswith(f"{tmp_path / 'run' / 'record.json'} {words}")


def test_what_is_no_file_is_named_and_not_waited_for(tmp_path):
    for name in ("pipe", "loop"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / "record.json")
    (tmp_path / "loop" / "record.json").symlink_to(tmp_path / "loop" / "record.json")
    found, complaints = records.find(tmp_path)
    assert not found and len(complaints) == 2
    assert "loop/record.json" in complaints[0] and complaints[1].endswith("pipe/record.json is no file")


def test_a_file_is_no_run(tmp_path):
    (tmp_path / "launch.py").write_text("")
    with pytest.raises(ValueError, match=r"launch\.py is no run: a run is a folder, or its record\.json"):
        records.demanded(tmp_path / "launch.py")
