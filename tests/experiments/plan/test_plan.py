"""A plan says what the compiler says, for the device here what the run then reports, and never breaks off."""

import subprocess
import sys

import pytest

import launch
from experiments import files
from experiments.model import DTYPES
from experiments.plan import devices, mode, pool, roofline, worker
from tests.experiments.runs import command, record_of


def planned(workdir):
    (path,) = (workdir / mode.FOLDER).glob("*.json")
    return files.read_json(path)


def test_for_the_cpu_here_it_equals_what_the_run_reports(undisturbed, tmp_path, capsys):
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu")) == 0
    shown = capsys.readouterr().out
    assert "the CPU here" in shown and "compiled for these devices, run on none" in shown
    plan, record = planned(tmp_path), record_of(undisturbed)
    answer = plan["compiled_for"]["cpu"]
    for program in ("training_step", "forward"):
        assert answer["memory"][program] == record["memory"][program]
    assert answer["fits"] is True and plan["identity"] == record["identity"]
    batch = record["config"]["train"]["batch_size"]
    assert answer["roofline"]["operations"] == batch * record["flops"]["training"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--mode=plan", "--target=abacus"], "--target=abacus is unknown; known are cpu, tpu-v4"),
        (["--mode=plan", "--target="], "known are cpu"),
        (["--target=cpu"], "--target and --longest are of --mode=plan"),
        (["--mode=sketch"], "sketch"),
    ],
)
def test_wrong_use_is_one_line(tmp_path, capsys, flags, words):
    assert launch.main(command(tmp_path, *flags)) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_a_missing_compiler_is_answered_with_its_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pool, "_version", lambda _: None)
    assert launch.main(command(tmp_path, "--mode=plan")) == 2
    assert "pip install -e '.[plan]'" in capsys.readouterr().err


def test_the_longest_is_found_by_compiling(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mode, "capacity", lambda _: 2_000_000)
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu", "--longest")) == 0
    found = planned(tmp_path)["longest"]["cpu"]["full"]
    tried = {int(length): total for length, total in found["tried"].items()}
    assert tried[found["length"]] <= 1_600_000 < tried[found["beyond"]]
    assert f"full: {found['length']:,}" in capsys.readouterr().out


def test_a_length_at_which_the_compiler_fails_is_not_said_not_to_fit(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pool, "_started", lambda *_: started("pass")(*_))
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu", "--longest")) == 0
    assert planned(tmp_path)["longest"]["cpu"]["full"]["failed"]
    assert "full: none (compiler failed at 8)" in capsys.readouterr().out


def started(code):
    return lambda *_: subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_compiler_that_crashes_is_a_result(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pool, "_started", started("import os; os.kill(os.getpid(), 9)"))
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu")) == 0
    answer = planned(tmp_path)["compiled_for"]["cpu"]
    assert answer["reason"] == "the compiler's process ended with -9" and answer["fits"] is None
    assert "failed" in capsys.readouterr().out


def test_a_compiler_that_finds_no_room_is_a_result(tmp_path, monkeypatch):
    answer = '{"outcome": "out of memory (compiled)", "reason": "Ran out of memory in memory space hbm"}'
    monkeypatch.setattr(pool, "_started", started(f"input(); print('{answer}', flush=True); input()"))
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu")) == 0
    answer = planned(tmp_path)["compiled_for"]["cpu"]
    assert answer["fits"] is False and "hbm" in answer["reason"]


def test_answers_are_kept_but_for_failures(tmp_path, monkeypatch):
    path, *overrides = command(tmp_path)
    overrides = [each for each in overrides if each.startswith("--config.")]
    asked = path.removeprefix("--config="), overrides, tmp_path / "kept"
    answers = iter(['{"outcome": "compiled"}'])
    monkeypatch.setattr(
        pool, "_started", lambda *_: started(f"input(); print('{next(answers)}', flush=True); input()")(*_)
    )
    with pool.asking("cpu", *asked) as ask:
        assert ask([]) == {"outcome": "compiled"}
    with pool.asking("cpu", *asked) as ask:
        assert ask([]) == {"outcome": "compiled", "kept": True}
    monkeypatch.setattr(pool, "_started", started("pass"))
    for _ in range(2):
        with pool.asking("cpu", *asked) as ask:
            assert ask(["--config.train.batch_size=2"])["outcome"] == "failed"


@pytest.mark.parametrize("device", devices.DEVICES.values(), ids=lambda device: device.name)
def test_a_device_is_described(device):
    assert set(device.peak) >= set(DTYPES) and device.memory > 2**33 and device.bandwidth > 1e11
    if device.kind == "gpu":
        text = devices.xla_target(device)
        assert f"device_memory_size: {device.memory}" in text and text.count("{") == text.count("}")


def test_the_roofline_by_hand():
    memory = {"arguments": 10**9, "outputs": 10**9, "temporaries": 10**9, "aliased": 0, "total": 3 * 10**9}
    found = roofline.bound("h200", "bfloat16", 989_400_000_000, memory)
    assert found["compute_seconds"] == pytest.approx(1e-3)
    assert found["memory_seconds"] == pytest.approx(4e9 / 4.8e12)
    assert found["bound_by"] == "compute" and found["bytes"] == 4 * 10**9
    assert all(rate > 0 for rate in roofline.rates(worker.HERE, "float32"))
