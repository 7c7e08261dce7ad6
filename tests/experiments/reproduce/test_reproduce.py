"""A record says how it is made again, and what then agrees."""

import copy
import shlex
import subprocess
from pathlib import Path

import pytest

import launch
from experiments import files, provenance
from experiments.reproduce import __main__ as command
from experiments.reproduce import agreement, steps
from tests.experiments.runs import only_folder, record_of

RESULTS = provenance.ROOT / "results"


def result(name):
    (path,) = RESULTS.glob(f"{name}-*/record.json")
    return files.read_json(path)


def test_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record = result("recall-lsh")
    (folder,) = RESULTS.glob("recall-lsh-*")
    assert command.main([str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    commit = record["provenance"]["git"]["commit"]
    code = f"{tmp_path}/again/code-{commit[:12]}"
    assert lines[:3] == [f"cd {provenance.ROOT}", f"git worktree add --detach {code} {commit}", f"cd {code}"]
    assert any(line.startswith("pip install -e . jax==0.10.2 jaxlib==0.10.2") for line in lines)
    (run,) = (shlex.split(line) for line in lines if line.startswith("python launch.py"))
    assert run[1:] == [
        "launch.py", "--config=configs/recall.py:lsh", "--config.eval.timed_steps=0",
        "--config.seeds=(0,1,2,3,4,5,6,7)", f"--workdir={tmp_path}/again",
    ]  # fmt: skip
    # Old code may have no such command, and its checkout not this record.
    assert lines[-2:] == [
        f"deactivate; cd {provenance.ROOT}",
        f"python -m experiments.reproduce {folder} --against {tmp_path}/again/{folder.name}",
    ]


def test_the_present_tree_is_left_as_it_is(tmp_path, monkeypatch):
    """What the lines do to code and folders, where the record came with a later commit."""
    git = ["git", "-C", str(tmp_path / "tree"), "-c", "user.name=a", "-c", "user.email=b"]
    (tmp_path / "tree").mkdir()
    for words in (["init", "-q"], *[["commit", "-q", "--allow-empty", "-m", x] for x in ("one", "two")]):
        subprocess.run([*git, *words], check=True)
    heads = subprocess.run([*git, "log", "--format=%H"], check=True, capture_output=True, text=True).stdout
    now, before = heads.split()
    monkeypatch.setattr(provenance, "ROOT", tmp_path / "tree")
    monkeypatch.chdir(tmp_path / "tree")
    record = result("window128")
    record["provenance"]["git"]["commit"] = before
    lines = steps.steps(record, Path("runs/x"))
    done = "; ".join(["set -e", *lines[:3], "git rev-parse HEAD", lines[-2].partition("; ")[2], "pwd"])
    said = subprocess.run(["bash", "-c", done], check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[-2:] == [before, str(tmp_path / "tree")]
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert head.strip() == now and f" {tmp_path}/tree/runs/x " in lines[-1]


def test_a_command_that_named_its_code_runs_the_code_of_the_commit():
    record = result("window128")
    record["sessions"][0]["argv"][0] = "/elsewhere/launch.py"
    assert steps.argv(record, Path("again"))[0] == "launch.py"


def test_what_was_not_in_a_commit_is_said():
    record = result("window128")
    record["provenance"]["git"] |= {"dirty": True, "status": [" M attention/window.py"]}
    record["provenance"]["environment"] = {"XLA_FLAGS": "--a=b c"}
    lines = steps.steps(record, Path("runs/x"))
    assert any("M attention/window.py" in line and line.startswith("#") for line in lines)
    assert "export XLA_FLAGS='--a=b c'" in lines
    record["provenance"]["git"] = None
    assert any("no git checkout" in line for line in steps.steps(record, Path("runs/x")))


def test_a_run_made_again_agrees_bit_for_bit(undisturbed, tmp_path, capsys):
    """By the command that its record gives."""
    first = record_of(undisturbed)
    words = steps.argv(first, tmp_path / "again")
    assert words[0] == "launch.py" and launch.main(words[1:]) == 0
    capsys.readouterr()
    again = only_folder(tmp_path / "again")
    assert command.main([str(only_folder(undisturbed)), "--against", str(again)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == agreement.SAME


@pytest.mark.parametrize(
    ("change", "verdict"), [(1e-6, agreement.CLOSE), (0.01, agreement.CLOSE), (1.0, agreement.APART)]
)
def test_scores_may_differ_within_the_interval(change, verdict):
    first = result("recall-lsh")
    again = copy.deepcopy(first)
    again["seeds"]["3"]["test"]["accuracy"] += change
    again["provenance"]["packages"]["jax"] = "0.0.1"
    found = agreement.agreement(first, again)
    assert found.verdict == verdict and "jax: was 0.10.2, is 0.0.1" in found.lines


def test_one_seed_may_differ_by_rounding_alone():
    first = result("window128")
    for change, verdict in ((1e-6, agreement.CLOSE), (0.01, agreement.APART)):
        again = copy.deepcopy(first)
        again["seeds"]["0"]["test"]["bits_per_byte"] += change
        assert agreement.agreement(first, again).verdict == verdict


def test_a_seed_that_diverged_only_once_does_not_agree():
    first = result("recall-lsh")
    again = copy.deepcopy(first)
    again["seeds"]["3"] = {"outcome": "diverged"}
    del again["seeds"]["4"]
    found = agreement.agreement(first, again)
    assert found.verdict == agreement.APART
    assert "seeds 4 were not made again" in found.lines and "seed 3: was finished, is diverged" in found.lines


@pytest.mark.parametrize(
    ("change", "verdict", "told"),
    [
        ({}, agreement.SAME, "seed 3: diverged both times, at step 40 (loss is nan at step 40)"),
        ({"step": 50}, agreement.APART, "was at step 40 (loss is nan at step 40), is at step 50"),
        ({"reason": "a gradient is inf"}, agreement.APART, "is at step 40 (a gradient is inf)"),
    ],
)
def test_a_seed_that_diverged_both_times_is_no_seed_with_scores(change, verdict, told):
    first = result("recall-lsh")
    first["seeds"]["3"] = {"outcome": "diverged", "step": 40, "reason": "loss is nan at step 40"}
    again = copy.deepcopy(first)
    again["seeds"]["3"] |= change
    found = agreement.agreement(first, again)
    assert found.verdict == verdict
    assert any(told in line for line in found.lines)
    assert sum("bit for bit" in line for line in found.lines) == 7


def test_seeds_that_were_interrupted_both_times_say_nothing():
    first = result("window128")
    first["seeds"]["0"] = {"outcome": "interrupted"}
    found = agreement.agreement(first, copy.deepcopy(first))
    assert found.verdict == agreement.APART and "nothing to compare" in found.lines[-1]


def test_what_only_measures_is_held_against_what_was_counted():
    first = files.read_json(min((RESULTS / "scaling").glob("scaling-lsh-*/record.json")))
    again = copy.deepcopy(first)
    again["speed"]["training_step"]["median"] *= 2
    found = agreement.agreement(first, again)
    assert found.verdict == agreement.CLOSE and "nothing was trained" in found.lines[-1]
    again["memory"]["forward"]["total"] += 1
    again["parameters"]["total"] = 7
    found = agreement.agreement(first, again)
    assert found.verdict == agreement.APART
    assert f"parameters: was {first['parameters']['total']}, is 7" in found.lines
    assert any(line.startswith("bytes, forward, total: was ") for line in found.lines)


def test_what_is_no_run_and_another_config_are_one_line(tmp_path, capsys):
    (one,), (other,) = RESULTS.glob("recall-lsh-*"), RESULTS.glob("window128-*")
    for words in ([str(tmp_path)], [str(one), "--against", str(other)]):
        assert command.main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith("reproduce: ") and error.count("\n") == 1
