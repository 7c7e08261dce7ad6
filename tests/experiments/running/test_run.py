"""A run from its command to its record: what it leaves, shows and refuses."""

import errno
import os

import pytest

import launch
from experiments import measure, provenance, records
from experiments.running import work
from experiments.training import checkpoint, program
from tests.experiments.runs import command, lasting, only_folder, record_of

pytestmark = pytest.mark.usefixtures("compiled_once")


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
    assert set(seed["test_at_length"]) == set(seed["at_chance_at_length"]) == {"24"}
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
        patch.setattr(provenance, "gather", lambda *_: now | {"code_sha256": "0" * 64})
        assert launch.main(command(undisturbed)) == 0
    assert "since then: code was" in capsys.readouterr().out


def test_same_command_twice_gives_the_same_bits(undisturbed, tmp_path):
    assert launch.main(command(tmp_path)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


def test_it_is_measured_before_it_trains(tmp_path, monkeypatch):
    """What training has used would else be found in use."""
    order = []
    for module, name in ((program, "measured"), (work, "_train")):
        call = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, call=call, name=name: (order.append(name), call(*given))[1]
        )
    assert launch.main(command(tmp_path)) == 0
    assert order == ["measured", "_train"]


def test_what_was_not_measured_can_be_later(tmp_path):
    assert launch.main(command(tmp_path, eval__timed_steps=0)) == 0
    before = record_of(tmp_path)
    assert "measured" not in before["memory"]
    assert launch.main(command(tmp_path)) == 0
    after = record_of(tmp_path)
    assert after["speed"]["training_step"]["n"] == 2 and after["seeds"] == before["seeds"]


def test_without_seeds_it_is_measured_and_seeds_can_follow(undisturbed, tmp_path, capsys):
    assert launch.main(command(tmp_path, seeds="()")) == 0
    measured = record_of(tmp_path)
    assert measured["outcome"] == "finished" and measured["seeds"] == {} and measured["groups"] == []
    assert measured["speed"]["training_step"]["n"] == 2 and measured["memory"]["measured"]
    assert "not trained" in capsys.readouterr().out
    assert launch.main(command(tmp_path, seeds="()")) == 0
    assert record_of(tmp_path) == measured
    assert launch.main(command(tmp_path)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


@pytest.mark.parametrize(("asked", "said"), [(1, False), (2, False), (3, True)])
def test_more_timed_steps_than_were_measured_are_not_ignored_in_silence(undisturbed, capsys, asked, said):
    assert launch.main(command(undisturbed, eval__timed_steps=asked)) == 0
    assert ("were measured with 2 steps" in capsys.readouterr().out) == said
    assert record_of(undisturbed)["speed"]["training_step"]["n"] == 2


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


def test_dry_run_of_a_grid_lists_its_rates(tmp_path, capsys):
    grid = "--config.optimizer.learning_rate_grid=(1e-3,0.5)"
    assert launch.main(command(tmp_path, "--dry_run", grid)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "learning rate the one of 0.001, 0.5 that validates best" in shown and "at step" not in shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["stray"], "stray"),
        (["--work=x"], "there is no --work; did you mean --workdir?"),
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
    for flags in ([], [f"--compilation_cache={tmp_path}/file/x"]):
        (tmp_path / "file").write_text("")
        assert launch.main(command(tmp_path / "file", *flags)) == 2
        assert f"'{tmp_path}/file/" in capsys.readouterr().err


@pytest.fixture
def begun(tmp_path, monkeypatch, capsys):
    """The folder of a run that has a record and nothing else yet."""
    with monkeypatch.context() as patch:
        patch.setattr(measure, "free_memory", lambda _: 1000)
        assert launch.main(command(tmp_path)) == 4
    capsys.readouterr()
    return only_folder(tmp_path)


@pytest.mark.parametrize("place", ["seed-0", "seed-0/checkpoints", "seed-0/metrics.jsonl/"])
def test_a_file_in_the_place_of_a_runs_folder_is_one_line(begun, tmp_path, capsys, place):
    path = begun / place
    path.parent.mkdir(exist_ok=True)
    if place.endswith("/"):
        path.mkdir()
    else:
        path.write_text("mine")
    assert launch.main(command(tmp_path)) == 2
    error = capsys.readouterr().err
    assert str(path) in error and error.count("\n") == 1
    assert record_of(tmp_path)["exit_code"] == 2 and str(path) in record_of(tmp_path)["reason"]
    path.rmdir() if path.is_dir() else path.unlink()
    assert launch.main(command(tmp_path)) == 0


def test_a_folder_in_the_place_of_a_record_is_one_line(begun, tmp_path, capsys):
    (begun / records.RECORD).unlink()
    (begun / records.RECORD).mkdir()
    assert launch.main(command(tmp_path)) == 2
    error = capsys.readouterr().err
    assert str(begun / records.RECORD) in error and error.count("\n") == 1


@pytest.mark.parametrize("call", ["Path.mkdir", "open"])
@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, 75), (errno.EROFS, 75), (errno.EACCES, 2), (errno.EPERM, 2)]
)
def test_where_nothing_can_be_written_from_the_start_one_line_says_so(
    tmp_path, capsys, monkeypatch, call, number, code
):
    """A disk may have room later; to try again without a right is no use."""

    def refused(*_, **__):
        raise OSError(number, os.strerror(number), "there")

    monkeypatch.setattr(f"experiments.running.run.{call}", refused, raising=False)
    assert launch.main(command(tmp_path / "runs")) == code
    error = capsys.readouterr().err
    assert f"{os.strerror(number)}: 'there'" in error and error.count("\n") == 1
