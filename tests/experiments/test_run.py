"""A run from its command to its record: interrupted, killed, diverged, out of memory, changed, refused."""

import dataclasses
import fcntl
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import launch
from experiments import checkpoint, fit, grid, measure, program, provenance, records, screen, settings, tasks

ROOT = Path(launch.__file__).parent
# launch.py, so slow that a kill falls in the middle.
SLOWED_DOWN = """
import sys, time, launch
from experiments.screen import Live
Live.step = lambda *_: time.sleep(0.2)
sys.exit(launch.main(sys.argv[1:]))
"""
TINY = {
    "task.length": 16,
    "task.num_pairs": 2,
    "task.vocab_size": 16,
    "task.num_validation": 12,
    "task.num_test": 12,
    "task.eval_lengths": "(24,)",
    "model.num_layers": 1,
    "model.model_dim": 8,
    "model.head_dim": 8,
    "model.dropout_rate": 0.1,
    "optimizer.warmup_steps": 2,
    "train.batch_size": 4,
    "train.steps": 20,
    "train.eval_every": 5,
    "train.checkpoint_every": 4,
    "train.log_every": 3,
    "train.stop_when_solved": False,
    "eval.batch_size": 8,
    "eval.timed_steps": 2,
}


def command(workdir, *flags, **changes):
    values = TINY | {name.replace("__", "."): value for name, value in changes.items()}
    overrides = [f"--config.{name}={value}" for name, value in values.items()]
    return [f"--config={ROOT}/configs/recall.py", f"--workdir={workdir}", *overrides, *flags]


def only_folder(workdir):
    (folder,) = (path for path in workdir.iterdir() if path.is_dir())
    return folder


def record_of(workdir):
    record = records.read_record(only_folder(workdir))
    assert record is not None
    return record


def lasting(record):
    return records.without_timings(record)


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """Programs are compiled once for each identity, and the tree may be worked on meanwhile."""
    build, known = program.build, {}

    def cached(config, task, num_seeds=1):
        name = settings.identity(config), num_seeds
        if name not in known:
            known[name] = build(config, task, num_seeds)
        return known[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "build", cached)
        patch.setattr(provenance, "gather", functools.cache(provenance.gather))
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The workdir of a run that nothing befell."""
    workdir = tmp_path_factory.mktemp("undisturbed")
    assert launch.main(command(workdir)) == 0
    return workdir


def test_record_carries_everything(undisturbed):
    record = record_of(undisturbed)
    folder = only_folder(undisturbed)
    assert record["outcome"] == "finished" and record["exit_code"] == 0
    assert record["config"]["model"]["model_dim"] == 8 and record["config"]["attention"]["name"] == "full"
    assert record["differences"]["model.model_dim"] == 8
    assert folder.name == f"recall-full-{record['identity']}"
    assert record["task"]["name"] == "recall" and len(record["task"]["sha256"]) == 64
    assert record["parameters"]["total"] == sum(a["size"] for a in record["parameters"]["by_array"].values())
    for name in ("forward", "training_step"):
        assert record["memory"][name]["temporaries"] > 0
        assert record["speed"][name]["n"] == 2 and record["speed"]["compile_seconds"][name] > 0
        assert (
            record["memory"]["measured"][name]["bytes"] > 0 and record["memory"]["measured"][name]["method"]
        )
    assert (
        record["memory"]["forward_24"]["total"] > 0 and record["speed"]["compile_seconds"]["forward_24"] > 0
    )
    assert record["groups"] == [[0]] and record["learning_rate"] == 3e-3
    assert record["flops"]["training"] > record["flops"]["forward"] > 0
    seed = record["seeds"]["0"]
    assert set(seed["test"]) == set(seed["validation"]) >= {"loss", "accuracy"}
    assert set(seed["test_at_length"]) == {"24"}
    assert all(len(value) == 64 for value in seed["sha256"].values())
    assert record["summary"]["test"]["accuracy"]["n"] == 1
    assert record["provenance"]["packages"]["jax"] and record["sessions"][0]["argv"][0] == "launch.py"
    assert lasting(record) != record


def test_course_is_logged_at_its_steps(undisturbed):
    lines = records.read(only_folder(undisturbed) / "seed-0" / "metrics.jsonl")
    steps = {split: [x["step"] for x in lines if x["split"] == split] for split in ("train", "validation")}
    assert steps == {"train": [3, 6, 9, 12, 15, 18], "validation": [5, 10, 15, 20]}


def test_best_on_validation_is_what_was_tested(undisturbed):
    seed = record_of(undisturbed)["seeds"]["0"]
    lines = records.read(only_folder(undisturbed) / "seed-0" / "metrics.jsonl")
    accuracies = {x["step"]: x["accuracy"] for x in lines if x["split"] == "validation"}
    assert seed["validation"]["accuracy"] == max(accuracies.values())
    assert accuracies[seed["best_step"]] == max(accuracies.values())
    assert seed["best_step"] in checkpoint.steps(only_folder(undisturbed) / "seed-0" / "checkpoints")


def test_a_finished_run_is_shown_not_repeated(undisturbed, monkeypatch, capsys):
    before = record_of(undisturbed)
    monkeypatch.setattr(program, "build", None)
    assert launch.main(command(undisturbed)) == 0
    shown = capsys.readouterr().out
    assert "finished:" in shown and "recall-full" in shown and "chance" in shown
    assert record_of(undisturbed) == before
    with monkeypatch.context() as patch:
        now = provenance.gather()
        patch.setattr(provenance, "gather", lambda: now | {"code_sha256": "0" * 64})
        assert launch.main(command(undisturbed)) == 0
    assert "since then: code was" in capsys.readouterr().out


def test_same_command_twice_gives_the_same_bits(undisturbed, tmp_path):
    assert launch.main(command(tmp_path)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_same_command_continues(
    undisturbed, tmp_path, monkeypatch, capsys, number, code
):
    def interrupt_at_seven(self, seeds, step, loss, tokens_per_second):
        if step == 7:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", interrupt_at_seven)
        assert launch.main(command(tmp_path)) == code
    stopped = record_of(tmp_path)
    assert stopped["outcome"] == stopped["seeds"]["0"]["outcome"] == "interrupted"
    assert stopped["exit_code"] == code
    assert checkpoint.steps(only_folder(tmp_path) / "seed-0" / "checkpoints")[-1] >= 7
    assert launch.main(command(tmp_path)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))
    assert [session["exit_code"] for session in record_of(tmp_path)["sessions"]] == [code, 0]
    assert "seed 0 continues at step" in capsys.readouterr().out


def test_stopped_inside_a_validation_it_is_done_again_once(undisturbed, tmp_path, monkeypatch):
    evaluate = fit.evaluate

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(fit, "evaluate", interrupted)
        assert launch.main(command(tmp_path)) == 75
    assert launch.main(command(tmp_path)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))
    lines = records.read(only_folder(tmp_path) / "seed-0" / "metrics.jsonl")
    assert [x["step"] for x in lines if x["split"] == "validation"] == [5, 10, 15, 20]


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


def test_a_damaged_checkpoint_costs_time_not_bits(undisturbed, tmp_path, monkeypatch, capsys):
    def interrupt_at_eleven(self, seeds, step, loss, tokens_per_second):
        if step == 11:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", interrupt_at_eleven)
        assert launch.main(command(tmp_path)) == 75
    last = sorted((only_folder(tmp_path) / "seed-0" / "checkpoints").iterdir())[-1]
    victim = max((p for p in last.rglob("*") if p.is_file()), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    assert launch.main(command(tmp_path)) == 0
    assert f"checkpoint of step {int(last.name)} is set aside" in capsys.readouterr().out
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


def test_new_seeds_are_added_and_old_ones_kept(tmp_path, capsys):
    assert launch.main(command(tmp_path, seeds="(0,)", task__eval_lengths="()")) == 0
    first = record_of(tmp_path)
    assert launch.main(command(tmp_path, seeds="(0,1,2)", task__eval_lengths="()")) == 0
    second = record_of(tmp_path)
    assert second["seeds"]["0"] == first["seeds"]["0"] and second["seeds"]["1"]["outcome"] == "finished"
    assert len({entry["sha256"]["params"] for entry in second["seeds"].values()}) == 3
    assert second["config"]["seeds"] == [0, 1, 2] and second["summary"]["test"]["accuracy"]["n"] == 3
    assert second["groups"] == [[0], [1, 2]] and second["differences"]["seeds"] == [0, 1, 2]
    assert "By seed: 0: " in capsys.readouterr().out


def test_seeds_at_once_are_the_seeds_one_by_one(tmp_path):
    """Within 1e-4 in parameters' losses and metrics: vmapped products round differently."""
    together, alone = (
        (
            launch.main(command(tmp_path / str(n), seeds="(1,2)", train__seeds_at_once=n)),
            record_of(tmp_path / str(n)),
        )[1]
        for n in (2, 1)
    )
    assert together["groups"] == [[1, 2]] and alone["groups"] == [[1], [2]]
    for seed in ("1", "2"):
        for metric, value in alone["seeds"][seed]["validation"].items():
            assert together["seeds"][seed]["validation"][metric] == pytest.approx(value, abs=1e-4)
        lines = [
            records.read(only_folder(tmp_path / str(n)) / f"seed-{seed}" / "metrics.jsonl") for n in (2, 1)
        ]
        for ours, theirs in zip(*lines, strict=True):
            assert ours["step"] == theirs["step"] and ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4)


def test_seeds_at_once_stopped_and_continued_give_the_same_bits(tmp_path, monkeypatch):
    assert launch.main(command(tmp_path / "one", seeds="(1,2)")) == 0

    def interrupt_at_seven(self, seeds, step, loss, tokens_per_second):
        if step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", interrupt_at_seven)
        assert launch.main(command(tmp_path / "two", seeds="(1,2)")) == 75
    assert launch.main(command(tmp_path / "two", seeds="(1,2)")) == 0
    assert lasting(record_of(tmp_path / "two")) == lasting(record_of(tmp_path / "one"))


def test_an_unfinished_seed_leaves_the_run_unfinished(tmp_path, monkeypatch):
    def interrupt(self, seeds, step, loss, tokens_per_second):
        if seeds == "seed 1" and step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    both = {"seeds": "(0,1)", "train__seeds_at_once": 1}
    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", interrupt)
        assert launch.main(command(tmp_path, **both)) == 75
    assert launch.main(command(tmp_path, seeds="(0,)")) == 75
    assert record_of(tmp_path)["outcome"] == "interrupted"
    assert launch.main(command(tmp_path, **both)) == 0


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


def test_what_was_not_measured_can_be_later(tmp_path):
    assert launch.main(command(tmp_path, eval__timed_steps=0)) == 0
    before = record_of(tmp_path)
    assert "measured" not in before["memory"]
    assert launch.main(command(tmp_path)) == 0
    after = record_of(tmp_path)
    assert after["speed"]["training_step"]["n"] == 2 and after["seeds"] == before["seeds"]


def test_the_learning_rate_is_the_one_of_the_grid_that_validates_best(tmp_path, capsys):
    tried = {"optimizer__learning_rate_grid": "(1e-2, 1e38)", "optimizer__schedule": "constant"}
    assert launch.main(command(tmp_path, **tried, task__eval_lengths="()", eval__timed_steps=0)) == 0
    record = record_of(tmp_path)
    assert set(record["grid"]) == {"0.01", "1e+38"} and record["grid"]["1e+38"]["outcome"] == "diverged"
    assert record["learning_rate"] == 0.01
    assert record["seeds"]["0"]["validation"]["accuracy"] == record["grid"]["0.01"]["validation"]
    assert "learning rate 0.01 validates best" in capsys.readouterr().out


def test_of_the_grid_the_best_that_was_trained_is_chosen():
    task = tasks.make("recall")
    trials = {
        "0.1": {"outcome": "finished", "validation": 0.5},
        "0.01": {"outcome": "finished", "validation": 0.5},
        "0.2": {"outcome": "diverged", "validation": None},
        "0.3": {"outcome": "finished", "validation": 0.4},
    }
    assert grid.chosen(trials, task) == 0.01
    assert grid.chosen({"0.2": trials["0.2"]}, task) is None
    trials["0.3"]["validation"] = 0.6
    assert grid.chosen(trials, task) == 0.3


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

        monkeypatch.setattr("experiments.work.fit", raising)

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


def test_dry_run_shows_the_plan_and_writes_nothing(tmp_path, capsys):
    assert launch.main(command(tmp_path / "none", "--dry_run")) == 0
    shown = capsys.readouterr().out
    for expected in (
        "embedding",
        "total",
        "temporaries",
        "training step",
        "FLOPs",
        "learning rate",
        "step 19",
    ):
        assert expected in shown
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["stray"], "stray"),
        (["--work=x"], "--work=x"),
        (["--config.model.model_dmi=3"], "model_dmi"),
        (["--require_device=gpu"], "jax computes on cpu"),
        (["--require_device=abacus"], "abacus"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(tmp_path, capsys, flags, message):
    assert launch.main(command(tmp_path / "none", *flags)) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_no_config_and_no_folder_are_one_line(tmp_path, capsys):
    assert launch.main([]) == 2
    assert "--config" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert launch.main(command(tmp_path / "file")) == 2
    assert "--workdir" in capsys.readouterr().err


def test_two_processes_do_not_share_a_run(undisturbed, capsys):
    with open(only_folder(undisturbed) / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert launch.main(command(undisturbed)) == 2
    assert "another process" in capsys.readouterr().err


def test_several_configs_run_one_after_the_other_each_in_its_own_process(tmp_path, monkeypatch):
    started, codes = [], {"window": 3}

    class Child:
        def __init__(self, arguments):
            started.append(arguments[2:])

        def wait(self):
            return codes.get(started[-1][0].rpartition(":")[2], 0)

    monkeypatch.setattr(launch.subprocess, "Popen", Child)
    monkeypatch.setattr(launch.signal, "signal", lambda *_: None)
    first, workdir, *rest = command(tmp_path)
    configs = [f"{first}:{name}" for name in ("full", "window", "lsh")]
    spaced = [word for config in configs for word in config.split("=")]
    for words in (configs, spaced):
        assert launch.main([*words, workdir, *rest, "--dry_run"]) == 3
        assert started == [[config, workdir, "--dry_run", *rest] for config in configs]
        started.clear()
    codes["window"] = 75
    assert launch.main([*configs, workdir, *rest]) == 75 and len(started) == 2
    codes["window"] = -9
    assert launch.main([*configs, workdir, *rest]) == 137
    started.clear()
    assert launch.main([*configs, f"{first}:lhs", workdir, *rest]) == 2 and not started
