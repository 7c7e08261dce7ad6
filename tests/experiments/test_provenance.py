"""Provenance sees changed code, versions, devices and settings, and lives without git."""

import copy
import subprocess

import pytest

from experiments import provenance


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path.resolve() / "project"
    for package in provenance.PACKAGES:
        (root / package).mkdir(parents=True)
        (root / package / "code.py").write_text("x = 1\n")
    monkeypatch.setattr(provenance, "ROOT", root)
    return root


def run(folder, *command):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *command], check=True, capture_output=True)


def test_code_hash_sees_contents_names_and_additions_of_sources_only(project):
    hashes = [provenance.code_sha256()]
    (project / "README.md").write_text("words")
    assert provenance.code_sha256() == hashes[0]
    file = project / "attention" / "code.py"
    file.write_text("x = 2\n")
    hashes.append(provenance.code_sha256())
    file.rename(project / "attention" / "other.py")
    hashes.append(provenance.code_sha256())
    (project / "experiments" / "deep").mkdir()
    (project / "experiments" / "deep" / "more.py").write_text("")
    hashes.append(provenance.code_sha256())
    assert len(set(hashes)) == 4


def test_git_states_commit_and_dirt(project):
    assert provenance.git() is None and provenance.diff() == ""
    run(project, "init", "-q")
    run(project, "add", ".")
    run(project, "commit", "-qm", "start")
    clean = provenance.git()
    assert clean is not None and len(clean["commit"]) == 40
    assert not clean["dirty"] and clean["diff_sha256"] is None
    (project / "attention" / "code.py").write_text("x = 2\n")
    dirty = provenance.git()
    assert dirty is not None and dirty["dirty"] and dirty["diff_sha256"]
    assert "+x = 2" in provenance.diff()


def test_new_code_is_dirt_whatever_its_name_and_bytes_and_a_run_is_not(project, tmp_path):
    run(project, "init", "-q")
    run(project, "add", ".")
    run(project, "commit", "-qm", "start")
    (project / "exp" / "run").mkdir(parents=True)
    (project / "exp" / "run" / "record.json").write_text("{}")
    (project / "notes.txt").write_bytes(b"caf\xe9")
    clean = provenance.git()
    assert clean is not None and not clean["dirty"] and provenance.diff() == ""
    (project / "attention" / "n\u00f6tig.py").write_bytes(b"# caf\xe9\n")
    found = provenance.git()
    assert found is not None and found["dirty"] and found["diff_sha256"]
    provenance.keep_diff(tmp_path)
    (kept,) = tmp_path.glob(f"dirty-{found['diff_sha256'][:8]}.diff")
    assert b"+# caf\xe9" in kept.read_bytes()


def test_where_git_does_not_answer_nothing_is_called_clean(project, monkeypatch):
    run(project, "init", "-q")
    run(project, "add", ".")
    run(project, "commit", "-qm", "start")
    ask = provenance._git
    monkeypatch.setattr(provenance, "_git", lambda *a, **k: None if a[0] == "status" else ask(*a, **k))
    found = provenance.git()
    assert found is not None and found["dirty"]


def test_a_checkout_around_an_installed_copy_is_not_taken_for_ours(project):
    run(project.parent, "init", "-q")
    assert provenance.git() is None


def test_differences_name_what_changed():
    now = provenance.gather()
    assert now["packages"]["jax"] and now["device"]["platform"] == "cpu"
    assert provenance.differences(now, now) == {}
    then = copy.deepcopy(now)
    then["code_sha256"] = "0" * 64
    then["packages"] |= {"jax": "0.1", "rich": "0.1"}
    then["device"]["kind"] = "H200"
    then["environment"]["XLA_FLAGS"] = "--fast"
    changed = provenance.differences(then, now)
    assert set(changed) == {provenance.CODE, "jax", "device", "environment"}
    assert changed["jax"] == ("0.1", now["packages"]["jax"])
    assert changed["device"][0] == f"{now['device']['count']} x cpu H200"
    then = copy.deepcopy(now)
    then["packages"]["nvidia-cudnn-cu13"] = "9.1"
    assert provenance.differences(then, now) == {}  # the CPU does not use it
    then["device"] |= {"platform": "gpu", "runtime": "CUDA 13"}
    assert set(provenance.differences(then, now)) == {"device", "the device's libraries", "runtime"}
