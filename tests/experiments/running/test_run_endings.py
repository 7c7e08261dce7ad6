"""How a run can end before its end, and how it goes on: stopped, killed, diverged, out of memory, changed."""

import dataclasses
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import launch
from experiments import measure, records
from experiments.config import settings
from experiments.running import run, screen
from experiments.training import checkpoint, fit, program
from tests.experiments.runs import ROOT, command, lasting, only_folder, record_of, stopping_at

pytestmark = pytest.mark.usefixtures("compiled_once")

# Puts a file in its place, and is killed while it does.
KILLED_WRITER = """
import os, pathlib, signal, sys
from experiments import files
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.write(pathlib.Path(sys.argv[1]), "new")
"""
# launch.py in a step without end.
STUCK = """
import sys, time, launch
from experiments.running.screen import Live
Live.step = lambda *_: (print("in a step", flush=True), time.sleep(600))
sys.exit(launch.main(sys.argv[1:]))
"""
# launch.py, so slow that a kill falls in the middle.
SLOWED_DOWN = """
import sys, time, launch
from experiments.running.screen import Live
Live.step = lambda *_: time.sleep(0.2)
sys.exit(launch.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_same_command_continues(
    undisturbed, tmp_path, monkeypatch, capsys, number, code
):
    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(7, number))
        assert launch.main(command(tmp_path)) == code
    stopped = record_of(tmp_path)
    assert stopped["outcome"] == stopped["seeds"]["0"]["outcome"] == "interrupted"
    assert stopped["exit_code"] == code
    assert checkpoint.steps(only_folder(tmp_path) / "seed-0" / "checkpoints")[-1] >= 7
    assert launch.main(command(tmp_path)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))
    assert [session["exit_code"] for session in record_of(tmp_path)["sessions"]] == [code, 0]
    assert "seed 0 continues at step" in capsys.readouterr().out


@pytest.mark.parametrize(("split", "call"), [("validation", 1), ("test", 5)])
def test_stopped_inside_an_evaluation_it_is_done_again_once(undisturbed, tmp_path, monkeypatch, split, call):
    evaluate, splits = fit.evaluate, []

    def interrupted(*arguments):
        splits.append(arguments[2])
        if len(splits) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(fit, "evaluate", interrupted)
        assert launch.main(command(tmp_path)) == 75
    assert splits[-1] == split and len(splits) == call
    assert launch.main(command(tmp_path)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))
    lines = records.read(only_folder(tmp_path) / "seed-0" / "metrics.jsonl")
    assert [x["step"] for x in lines if x["split"] == "validation"] == [5, 10, 15, 20]


def test_stopped_while_it_warms_up_it_measures_again(undisturbed, tmp_path, monkeypatch):
    timed = {"eval__timed_steps": 2}
    watched = measure.watched

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return watched(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(measure, "watched", interrupted)
        assert launch.main(command(tmp_path, **timed)) == 75
    assert record_of(tmp_path)["seeds"]["0"]["outcome"] != "finished"
    assert launch.main(command(tmp_path, **timed)) == 0
    assert record_of(tmp_path)["speed"]["training_step"]["n"] == 2
    assert record_of(tmp_path)["seeds"]["0"]["sha256"] == record_of(undisturbed)["seeds"]["0"]["sha256"]


def test_what_slurm_has_left_half_set_hangs_no_run(tmp_path):
    left = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_NODELIST": "node[1-4]"}
    subprocess.run(
        [sys.executable, "launch.py", *command(tmp_path, "--dry_run")],
        cwd=ROOT, env=os.environ | left | {"JAX_PLATFORMS": "cpu"}, timeout=300, check=True,
    )  # fmt: skip


@pytest.mark.parametrize(("closed", "config"), [("<&- >&- 2>&-", "recall"), ("2>&-", "none")])
def test_streams_that_are_closed_from_the_start_are_no_ones(tmp_path, closed, config):
    """Nothing is said, and no file that the run opens has the number of one of them."""
    arguments = " ".join(f"'{word}'" for word in command(tmp_path / "runs", "--dry_run"))
    arguments = arguments.replace("recall.py", f"{config}.py")
    said = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' launch.py {arguments} {closed}"],
        cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (said.returncode, said.stdout) == ({"recall": 0, "none": 2}[config], "")
    assert "Traceback" not in said.stderr


def test_killed_it_continues_to_the_same_bits(undisturbed, tmp_path, capsys):
    checkpoints = "seed-0/checkpoints/00000008"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWED_DOWN, *command(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(f"*/{checkpoints}")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert record_of(tmp_path)["outcome"] == "unfinished"
    assert launch.main(command(tmp_path)) == 0
    assert "seed 0 continues at step" in capsys.readouterr().out
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


def test_ctrl_c_twice_does_not_wait_for_the_step(undisturbed, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, *command(tmp_path)],
        cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout and "in a step\n" in iter(process.stdout.readline, "")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped before it could save" in out and err == ""
    assert record_of(tmp_path)["outcome"] == "interrupted" and record_of(tmp_path)["exit_code"] == 130
    assert launch.main(command(tmp_path)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


def test_what_a_killed_writer_left_is_swept_away(tmp_path):
    assert launch.main(command(tmp_path)) == 0
    folder, before = only_folder(tmp_path), record_of(tmp_path)
    inside = sorted(folder.rglob("*"))
    for name in (records.RECORD, "seed-0/metrics.jsonl"):
        writer = [sys.executable, "-c", KILLED_WRITER, str(folder / name)]
        assert subprocess.run(writer, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert len(sorted(folder.rglob("*"))) == len(inside) + 2
    assert launch.main(command(tmp_path)) == 0
    assert sorted(folder.rglob("*")) == inside and record_of(tmp_path) == before


def test_a_damaged_checkpoint_costs_time_not_bits(undisturbed, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(11))
        assert launch.main(command(tmp_path)) == 75
    last = sorted((only_folder(tmp_path) / "seed-0" / "checkpoints").iterdir())[-1]
    victim = max((p for p in last.rglob("*") if p.is_file()), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    assert launch.main(command(tmp_path)) == 0
    assert f"checkpoint of step {int(last.name)} is set aside" in capsys.readouterr().out
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


@pytest.mark.parametrize(("number", "code"), [(errno.EMFILE, 75), (errno.ESTALE, 75), (errno.EACCES, 2)])
def test_checkpoints_that_cannot_be_read_now_are_used_later(
    undisturbed, tmp_path, monkeypatch, capsys, number, code
):
    def unreadable(path):
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(11))
        assert launch.main(command(tmp_path)) == 75
        saved = checkpoint.steps(only_folder(tmp_path) / "seed-0" / "checkpoints")
        patch.setattr(checkpoint, "_hash", unreadable)
        capsys.readouterr()
        assert launch.main(command(tmp_path)) == code
    shown = "".join(capsys.readouterr())
    assert sum(os.strerror(number) in line for line in shown.splitlines()) == 1
    assert checkpoint.steps(only_folder(tmp_path) / "seed-0" / "checkpoints") == saved
    assert launch.main(command(tmp_path)) == 0
    assert f"continues at step {saved[-1]}" in capsys.readouterr().out
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


def test_other_data_is_not_continued(tmp_path, monkeypatch, capsys):
    assert launch.main(command(tmp_path)) == 0
    record = record_of(tmp_path)
    record["task"]["sha256"] = "0" * 64
    records.write_record(only_folder(tmp_path), record)
    assert launch.main(command(tmp_path, seeds="(0,1)")) == 5
    assert "the data's sha256 was 000000000000" in capsys.readouterr().out


def test_a_record_of_another_schema_is_left_alone(tmp_path, capsys):
    assert launch.main(command(tmp_path)) == 0
    record = record_of(tmp_path) | {"schema": 1}
    records.write_record(only_folder(tmp_path), record)
    assert launch.main(command(tmp_path)) == 2
    assert "schema 1" in capsys.readouterr().err and record_of(tmp_path) == record
    path = only_folder(tmp_path) / records.RECORD
    path.write_text(path.read_text()[:-100])
    cut = path.read_text()
    assert launch.main(command(tmp_path)) == 2
    assert "record.json is not JSON" in capsys.readouterr().err and path.read_text() == cut


def test_a_length_that_does_not_fit_is_left_out_and_named(tmp_path, monkeypatch):
    build = program.build

    def huge(config, task, num_seeds=1):
        built = build(config, task, num_seeds)
        return dataclasses.replace(built, memory=built.memory | {"forward_24": {"total": 10**15}})

    with monkeypatch.context() as patch:
        patch.setattr(program, "build", huge)
        assert launch.main(command(tmp_path)) == 0
    record = record_of(tmp_path)
    assert record["seeds"]["0"]["test_at_length"] == {} and record["seeds"]["0"]["test"]
    assert "out of memory (compiled)" in record["not_evaluated"]["24"]


def test_divergence_is_a_result(tmp_path, monkeypatch, capsys):
    collect = fit.jax.device_get
    calls = iter(range(10**6))

    def poisoned(values):
        got = collect(values)
        if isinstance(got, dict) and "grad_norm" in got and next(calls) == 6:
            got = got | {"loss": np.array([np.nan])}
        return got

    monkeypatch.setattr(fit.jax, "device_get", poisoned)
    assert launch.main(command(tmp_path)) == 3
    record = record_of(tmp_path)
    assert record["outcome"] == "diverged" and record["exit_code"] == 3
    seed = record["seeds"]["0"]
    assert seed["outcome"] == "diverged" and seed["step"] == 7 and "loss is nan at step 7" in seed["reason"]
    assert seed["last_good_step"] == 5 == checkpoint.steps(only_folder(tmp_path) / "seed-0/checkpoints")[-1]
    assert "diverged" in capsys.readouterr().out
    assert launch.main(command(tmp_path)) == 3  # shown, not tried again


def test_what_the_compiler_says_will_not_fit_is_not_run(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(measure, "free_memory", lambda _: 1000)
        assert launch.main(command(tmp_path)) == 4
    record = record_of(tmp_path)
    assert record["outcome"] == record["seeds"]["0"]["outcome"] == "out of memory (compiled)"
    assert "more than 80%" in record["reason"] and record["memory"]["training_step"]["total"] > 0
    assert not (only_folder(tmp_path) / "seed-0").exists()
    assert launch.main(command(tmp_path)) == 0


def test_out_of_memory_while_running_is_a_result_and_another_error_is_raised(tmp_path, monkeypatch):
    def fails(error):
        def raising(_):
            raise error

        monkeypatch.setattr("experiments.running.work.fit", raising)

    fails(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"))
    assert launch.main(command(tmp_path)) == 4
    assert record_of(tmp_path)["seeds"]["0"]["outcome"] == "out of memory"
    fails(OSError("disk on fire"))
    with pytest.raises(OSError, match="disk on fire"):
        launch.main(command(tmp_path))
    assert record_of(tmp_path)["outcome"] == "failed" and "disk on fire" in record_of(tmp_path)["reason"]


def test_changed_code_or_versions_do_not_continue_unless_allowed(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(measure, "free_memory", lambda _: 1000)
        launch.main(command(tmp_path))
    record = record_of(tmp_path)
    record["provenance"]["packages"]["jax"] = "0.0.1"
    records.write_record(only_folder(tmp_path), record)
    capsys.readouterr()
    assert launch.main(command(tmp_path)) == 5
    assert "jax was 0.0.1" in capsys.readouterr().out
    assert record_of(tmp_path) == record
    assert launch.main(command(tmp_path, "--allow_changes")) == 0
    continued = record_of(tmp_path)
    assert any("jax was 0.0.1" in reason for reason in continued["not_citable"])
    assert any("jax was 0.0.1" in change for change in continued["sessions"][-1]["changes"])


def test_two_processes_do_not_share_a_run(undisturbed, capsys):
    with open(only_folder(undisturbed) / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert launch.main(command(undisturbed)) == 2
    assert "another process" in capsys.readouterr().err


def test_nor_if_somebody_removes_the_lock(undisturbed, capsys):
    folder = only_folder(undisturbed)
    with run.alone(folder):
        (folder / ".lock").unlink()
        assert launch.main(command(undisturbed)) == 2
    assert "another process" in capsys.readouterr().err
    assert launch.main(command(undisturbed)) == 0


def test_a_record_of_another_config_is_left_as_it_is(undisturbed, tmp_path, capsys):
    """Somebody has renamed the folder."""
    folder = only_folder(undisturbed)
    other = command(tmp_path, train__steps=3)
    config = settings.load(
        other[0].removeprefix("--config="), [w for w in other if w.startswith("--config.")]
    )
    moved = tmp_path / f"{config.name}-{settings.identity(config)}"
    shutil.copytree(folder, moved)
    before = (moved / "record.json").read_bytes()
    assert launch.main(other) == 2
    assert f"the record in {moved} is of {folder.name}" in capsys.readouterr().err
    assert (moved / "record.json").read_bytes() == before
