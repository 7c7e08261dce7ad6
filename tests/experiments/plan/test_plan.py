"""A plan says what the compiler says, for the device here what the run then reports, and never breaks off."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import launch
from experiments import codes, files, measure, provenance
from experiments.model.transformer import DTYPES
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


def test_what_fits_is_what_the_run_would_take(tmp_path, monkeypatch):
    """The training step has room, and the forward pass over many sequences has not."""
    many = {"eval__batch_size": 64}
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu", **many)) == 0
    step, forward = (
        planned(tmp_path)["compiled_for"]["cpu"]["memory"][name]["total"] for name in pool.PROGRAMS
    )
    assert step < forward
    for room, fits in ((step, False), (forward, True)):
        monkeypatch.setattr(measure, "free_memory", lambda _, room=room: int(room / measure.SHARE) + 1)
        assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu", **many)) == 0
        assert planned(tmp_path)["compiled_for"]["cpu"]["fits"] is fits
        assert launch.main(command(tmp_path, **many)) == (0 if fits else codes.OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--mode=plan", "--target=abacus"], "--target=abacus is unknown; known are tpu-v4"),
        (["--mode=plan", "--target="], "b200, cpu and all"),
        (["--target=cpu"], "--target and --longest are of --mode=plan"),
        (["--mode=sketch"], "sketch"),
    ],
)
def test_wrong_use_is_one_line(tmp_path, capsys, flags, words):
    assert launch.main(command(tmp_path, *flags)) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_where_free_memory_is_not_known_nothing_is_said_to_fit_or_not(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measure, "free_memory", lambda _: None)
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu")) == 0
    assert planned(tmp_path)["compiled_for"]["cpu"]["fits"] is None and "unknown" in capsys.readouterr().out
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu", "--longest")) == 2
    assert "how much memory is free" in capsys.readouterr().err


def test_a_missing_compiler_is_answered_with_its_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pool, "_version", lambda _: None)
    assert launch.main(command(tmp_path, "--mode=plan")) == 2
    assert "pip install -e '.[plan]'" in capsys.readouterr().err


def test_the_longest_is_found_by_compiling(tmp_path, capsys, monkeypatch):
    """Also where the steps are what FLOPs pay for, which at these lengths pay for none."""
    monkeypatch.setattr(mode, "capacity", lambda *_: 2_000_000)
    paid = {"train__flops": 2e6, "optimizer__warmup_steps": 0}
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu", "--longest", **paid)) == 0
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


@pytest.mark.skipif(sys.platform != "linux", reason="as experiments/tied.py")
def test_who_stops_a_plan_does_not_wait_for_its_compilers(tmp_path):
    words = [sys.executable, "launch.py", *command(tmp_path, "--mode=plan", "--target=cpu")]
    plan = subprocess.Popen(
        words, cwd=provenance.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (compilers := children(plan.pid)) and plan.poll() is None:
        time.sleep(0.01)
    plan.send_signal(signal.SIGTERM)
    _, error = plan.communicate()
    assert (plan.returncode, error) == (codes.RESUMABLE, "launch.py: stopped\n")
    while any(Path(f"/proc/{each}").exists() for each in compilers):
        time.sleep(0.01)
    assert not [*(tmp_path / mode.FOLDER).glob("*.json")]


def children(pid):
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in lists for child in path.read_text().split()]


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
    assert "https://" in device.source
    if device.kind == "gpu":
        text = devices.xla_target(device)
        assert f"device_memory_size: {device.memory}" in text and text.count("{") == text.count("}")


GROWTH = """
import sys, jax, attention
from experiments import measure
variant, shape = attention.make(sys.argv[1]), (1, int(sys.argv[2]), 4, 64)
arrays = [jax.random.normal(jax.random.key(i), shape) for i in range(3)]
loss = lambda *arrays: variant(*arrays, attention.Mask(causal=True)).sum()
compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*arrays).compile()
run = lambda arrays: jax.block_until_ready(compiled(*arrays))
run(arrays)
memory = measure.compiled_memory(compiled)
print((memory["temporaries"] + memory["outputs"]) / measure.resident_growth(run, arrays)["bytes"])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "length"), [("dense", 2048), ("window", 32768)])
def test_a_process_takes_what_is_planned_within_a_factor_of_two(name, length):
    """More, as products take room of their own; or less, of pages that it had and that were never touched."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, name, str(length)], capture_output=True, text=True, check=True
    )
    assert 0.5 <= float(done.stdout) <= 2


def test_several_devices_are_named_and_counted():
    slice_ = devices.find("tpu-v5e:4x4")
    assert (slice_.slice, slice_.count, slice_.name) == ("v5e:4x4", 16, "tpu-v5e:4x4")
    assert devices.find("tpu-7x:2x2x1").count == 8  # a chip is two devices
    assert (devices.find("h200:8").count, devices.find("h200:8").slice) == (8, "1x1x8")
    assert devices.find("h200").count == 1


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("tpu-v5e:4", "tpu-v5e:4 is no slice; one is written as tpu-v5e:2x2"),
        ("h200:0", "h200:0 is no slice; one is written as h200:8"),
        ("tpu-v9", "tpu-v9 is unknown; known are tpu-v4"),
        ("tpu-v5e:4x4", "tpu-v5e:4x4 is 16 devices, but config.mesh asks for 1 x 1"),
    ],
)
def test_a_target_that_is_not_the_mesh_is_one_line(tmp_path, capsys, target, words):
    assert launch.main(command(tmp_path, "--mode=plan", f"--target={target}")) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_a_plan_of_several_devices_is_what_each_takes(tmp_path, capsys):
    """On processors here that are several in name."""
    mesh = {"mesh__data": 2, "eval__timed_steps": 0, "task__eval_lengths": "()"}
    assert launch.main(command(tmp_path, "--mode=plan", "--target=cpu", **mesh)) == 0
    alone = command(tmp_path / "alone", "--mode=plan", "--target=cpu", **mesh | {"mesh__data": 1})
    assert launch.main(alone) == 0
    shared, whole = (planned(path)["compiled_for"]["cpu"] for path in (tmp_path, tmp_path / "alone"))
    assert shared["memory"]["forward"]["temporaries"] < 0.7 * whole["memory"]["forward"]["temporaries"]
    assert 2 * shared["roofline"]["operations"] == whole["roofline"]["operations"]
    assert shared["capacity"] < 0.7 * whole["capacity"]  # of the one memory that there is


def test_the_roofline_by_hand():
    memory = {"arguments": 10**9, "outputs": 10**9, "temporaries": 10**9, "aliased": 0, "total": 3 * 10**9}
    found = roofline.bound("h200", "bfloat16", 989_400_000_000, memory)
    assert found["compute_seconds"] == pytest.approx(1e-3)
    assert found["memory_seconds"] == pytest.approx(4e9 / 4.8e12)
    assert found["bound_by"] == "compute" and found["bytes"] == 4 * 10**9
    assert all(rate > 0 for rate in roofline.rates(worker.HERE, "float32"))
