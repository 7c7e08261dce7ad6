"""Checkpoints: bitwise back, never half there, never silently wrong."""

import collections
import errno
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.training import checkpoint

Optimizer = collections.namedtuple("Optimizer", ["count", "empty", "moments"])


def state(value=0.0):
    weights = {"a/b": jnp.full((3, 2), value, jnp.float32), "half": jnp.full((4,), value, jnp.bfloat16)}
    return {
        "params": weights,
        "opt": Optimizer(jnp.int32(7), (), weights),
        "step": np.int32(5),
    }


def save_all(folder, *steps, needs=()):
    for step in steps:
        checkpoint.save(folder, step, state(step), {"needs": list(needs), "at": step})


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def largest(folder, step):
    inside = (folder / f"{step:08d}" / "state").rglob("*")
    return max((path for path in inside if path.is_file()), key=lambda path: path.stat().st_size)


def test_comes_back_bitwise_with_its_structure(tmp_path):
    saved = state(0.1)
    checkpoint.save(tmp_path, 5, saved, {"data": {"position": 3}, "needs": []})
    abstract = jax.eval_shape(lambda: state())
    back = checkpoint.restore(tmp_path, 5, abstract)
    assert jax.tree.structure(back.state) == jax.tree.structure(saved)
    assert checkpoint.digest(back.state) == checkpoint.digest(saved)
    assert back.progress == {"data": {"position": 3}, "needs": []}
    assert back.step == 5


def test_digest_sees_names_shapes_dtypes_and_bytes():
    array = np.zeros((2, 3), np.float32)
    others = [{"a": array.T}, {"b": array}, {"a": array.view(np.int32)}, {"a": -array}]
    assert len({checkpoint.digest(tree) for tree in [{"a": array}, *others]}) == 5


def test_keeps_the_newest_two_and_what_they_need(tmp_path):
    save_all(tmp_path, 10)
    save_all(tmp_path, 20, 30, needs=[10])
    assert checkpoint.steps(tmp_path) == [10, 20, 30]
    save_all(tmp_path, 40, 50, needs=[40])
    assert checkpoint.steps(tmp_path) == [40, 50]


def test_is_never_written_over(tmp_path):
    save_all(tmp_path, 10)
    with pytest.raises(FileExistsError, match="step 10 is saved already"):
        checkpoint.save(tmp_path, 10, state(99), {})
    assert checkpoint.restore(tmp_path, 10, state()).progress["at"] == 10


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "add", "progress", "manifest", "empty"])
def test_a_damaged_one_is_named_set_aside_and_the_one_before_is_used(tmp_path, damage):
    save_all(tmp_path, 10, 20)
    folder = tmp_path / "00000020"
    match damage:
        case "flip":
            flip(largest(tmp_path, 20))
        case "truncate":
            largest(tmp_path, 20).write_bytes(b"")
        case "remove":
            largest(tmp_path, 20).unlink()
        case "add":
            (folder / "state" / "stranger").write_text("?")
        case "progress":
            (folder / "progress.json").write_text('{"needs": [], "at": 21}')
        case "manifest":
            (folder / "manifest.json").write_text('{"half')
        case "empty":
            folder.rename(tmp_path / "00000020.gone")
            folder.mkdir()
    restored, complaints = checkpoint.restore_latest(tmp_path, state())
    assert restored is not None and restored.step == 10 and restored.progress["at"] == 10
    assert len(complaints) == 1 and "step 20" in complaints[0] and str(folder) in complaints[0]
    assert (tmp_path / "00000020.aside").is_dir()
    save_all(tmp_path, 20)  # its place is free again


def test_one_whose_best_is_damaged_is_not_used(tmp_path):
    save_all(tmp_path, 10, 20)
    save_all(tmp_path, 30, needs=[20])
    flip(largest(tmp_path, 20))
    restored, complaints = checkpoint.restore_latest(tmp_path, state())
    assert restored is None and len(complaints) == 2
    assert checkpoint.restore_latest(tmp_path, state()) == (None, [])


UNREADABLE = [errno.EMFILE, errno.EIO, errno.ESTALE, errno.EACCES]


@pytest.mark.parametrize("number", UNREADABLE)
@pytest.mark.parametrize("name", ["open", "os.scandir", "os.listdir"])
def test_what_cannot_be_read_now_is_not_damage(tmp_path, monkeypatch, name, number):
    save_all(tmp_path, 10, 20)

    def unreadable(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(f"experiments.training.checkpoint.{name}", unreadable, raising=False)
        with pytest.raises(OSError, match=os.strerror(number)):
            checkpoint.restore_latest(tmp_path, state())
    restored, complaints = checkpoint.restore_latest(tmp_path, state())
    assert restored is not None and restored.step == 20 and complaints == []


def test_what_is_needed_is_not_forgotten_because_that_cannot_be_read_now(tmp_path, monkeypatch):
    save_all(tmp_path, 10)
    save_all(tmp_path, 20, 30, needs=[10])

    def unreadable(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="open files"):
        patch.setattr(checkpoint.files, "read_json", unreadable)
        save_all(tmp_path, 40, needs=[10])
    assert checkpoint.steps(tmp_path) == [10, 20, 30, 40]


def test_what_is_no_manifest_is_damage_and_what_is_no_checkpoint_is_not_looked_at(tmp_path):
    save_all(tmp_path, 1, 2)
    (tmp_path / "00000002" / "manifest.json").write_text("[]")
    (tmp_path / "999").mkdir()
    restored, complaints = checkpoint.restore_latest(tmp_path, jax.eval_shape(lambda: state()))
    assert restored is not None and restored.step == 1 and "is no manifest" in complaints[0]


def test_a_save_cut_short_leaves_nothing_that_looks_like_a_checkpoint(tmp_path, monkeypatch):
    save_all(tmp_path, 10)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            save_all(tmp_path, 20)
    assert checkpoint.steps(tmp_path) == [10]
    save_all(tmp_path, 20)
    assert checkpoint.steps(tmp_path) == [10, 20]
    assert not list(tmp_path.glob(".saving-*"))


def test_another_shape_dtype_or_name_is_refused_not_cast(tmp_path):
    save_all(tmp_path, 10)
    wider = state() | {"step": np.int64(0)}
    longer = state() | {"step": np.zeros(2, np.int32)}
    more = state() | {"extra": np.int32(0)}
    for other, message in [(wider, r"int32\[\], not int64"), (longer, r"not int32\[2\]"), (more, "nothing")]:
        with pytest.raises(checkpoint.StructureError, match=message):
            checkpoint.restore_latest(tmp_path, other)
    assert checkpoint.steps(tmp_path) == [10]


def test_a_relative_folder_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_all(Path("here"), 10)
    assert checkpoint.restore(Path("here"), 10, state()).step == 10
