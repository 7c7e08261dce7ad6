"""Seeds of one cell: added, at once, one by one; and the learning rate that is chosen for them."""

import pytest

import launch
from experiments import records, tasks
from experiments.report import compare
from experiments.running import screen, work
from experiments.training import fit, grid
from tests.experiments.runs import command, lasting, only_folder, record_of, stopping_at

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_new_seeds_are_added_and_old_ones_kept(tmp_path, capsys):
    assert launch.main(command(tmp_path, seeds="(0,)", task__eval_lengths="()")) == 0
    first = record_of(tmp_path)
    assert launch.main(command(tmp_path, seeds="(0,1,2)", task__eval_lengths="()")) == 0
    second = record_of(tmp_path)
    assert second["seeds"]["0"] == first["seeds"]["0"] and second["seeds"]["1"]["outcome"] == "finished"
    assert len({entry["sha256"]["params"] for entry in second["seeds"].values()}) == 3
    assert second["config"]["seeds"] == [0, 1, 2] and second["summary"]["test"]["accuracy"]["n"] == 3
    assert second["groups"] == [[0], [1], [2]] and second["differences"]["seeds"] == [0, 1, 2]
    assert ", by seed: 0: " in capsys.readouterr().out


def test_seeds_at_once_are_the_seeds_one_by_one(tmp_path):
    """But for what a comparison takes for rounding: vmapped products round differently."""
    together, alone = (
        (
            launch.main(command(tmp_path / str(n), seeds="(1,2)", train__seeds_at_once=n)),
            record_of(tmp_path / str(n)),
        )[1]
        for n in (2, 1)
    )
    assert together["groups"] == [[1, 2]] and alone["groups"] == [[1], [2]]
    for seed in ("1", "2"):
        for split in ("validation", "test"):
            expected = pytest.approx(alone["seeds"][seed][split], compare.ROUNDING, compare.ROUNDING)
            assert together["seeds"][seed][split] == expected
        lines = [
            records.read(only_folder(tmp_path / str(n)) / f"seed-{seed}" / "metrics.jsonl") for n in (2, 1)
        ]
        for ours, theirs in zip(*lines, strict=True):
            assert ours["step"] == theirs["step"] and ours["loss"] == pytest.approx(
                theirs["loss"], compare.ROUNDING, compare.ROUNDING
            )


def test_seeds_at_once_stopped_and_continued_give_the_same_bits(tmp_path, monkeypatch):
    both = {"seeds": "(1,2)", "train__seeds_at_once": 2}
    assert launch.main(command(tmp_path / "one", **both)) == 0

    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(7))
        assert launch.main(command(tmp_path / "two", **both)) == 75
    assert launch.main(command(tmp_path / "two", **both)) == 0
    assert lasting(record_of(tmp_path / "two")) == lasting(record_of(tmp_path / "one"))


def test_an_unfinished_seed_leaves_the_run_unfinished(tmp_path, monkeypatch):
    both = {"seeds": "(0,1)", "train__seeds_at_once": 1}
    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(3, seeds="seed 1"))
        assert launch.main(command(tmp_path, **both)) == 75
    assert launch.main(command(tmp_path, seeds="(0,)")) == 75
    assert record_of(tmp_path)["outcome"] == "interrupted"
    assert launch.main(command(tmp_path, **both)) == 0


def test_groups_that_were_planned_stay_if_they_fit(tmp_path, monkeypatch, capsys):
    """Which seeds train at once decides their last bits; the memory that happens to be free must not."""

    def started(most, at_once):
        def killed(_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(work, "fit", killed)
            patch.setattr(work, "shortage", lambda built: "no room" if built.num_seeds > most else None)
            asked = {"seeds": "(0,1,2)", "train__seeds_at_once": at_once, "task__eval_lengths": "()"}
            launch.main(command(tmp_path, **asked))
        return record_of(tmp_path)["groups"]

    assert started(most=2, at_once=3) == [[0, 1], [2]]
    assert started(most=3, at_once=3) == [[0, 1], [2]]
    assert started(most=3, at_once=4) == [[0, 1, 2]]
    capsys.readouterr()
    assert started(most=2, at_once=4) == [[0, 1], [2]]
    assert "3 seeds do not train together, as was planned: no room" in capsys.readouterr().out


def test_seeds_that_were_not_begun_do_not_share_a_crash(tmp_path, monkeypatch):
    def crash_at_one(run):
        if run.seeds == (1,):
            raise MemoryError("by hand")
        return fit.fit(run)

    monkeypatch.setattr("experiments.running.work.fit", crash_at_one)
    each = {"seeds": "(0,1,2)", "train__seeds_at_once": 1, "task__eval_lengths": "()"}
    assert launch.main(command(tmp_path, **each)) == 4
    record = record_of(tmp_path)
    assert {seed: entry["outcome"] for seed, entry in record["seeds"].items()} == {
        "0": "finished",
        "1": "out of memory",
    }
    assert record["outcome"] == "out of memory" and record["summary"]["failed"] == 1


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


def test_the_test_split_is_read_once_by_each_group_after_its_last_step(tmp_path, monkeypatch):
    events, evaluate = [], fit.evaluate

    def told(self, label, step, loss, tokens_per_second):
        events.append((label, step))

    def counted(built, params, split, length, check):
        events.extend([(split, length)] * (split == "test"))
        return evaluate(built, params, split, length, check)

    monkeypatch.setattr(screen.Live, "step", told)
    monkeypatch.setattr(fit, "evaluate", counted)
    one_by_one = {"seeds": "(0,1)", "train__seeds_at_once": 1, "eval__timed_steps": 0}
    asked = command(tmp_path, **one_by_one, optimizer__learning_rate_grid="(3e-3,)")
    assert launch.main(asked) == launch.main(asked) == 0
    trial, second = ([(f"seed {seed}", step) for step in range(1, 21)] for seed in (0, 1))
    tests = [("test", 16), ("test", 24)]
    assert events == [*trial, *tests, *second, *tests]  # the first seed is what its trial left
