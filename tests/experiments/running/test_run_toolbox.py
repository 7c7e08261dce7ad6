"""All of training's toolbox in one run, on padded reviews; and the flags of a run."""

import shutil

import jax
import numpy as np
import pytest

import launch
from experiments import measure, provenance, records
from experiments.config import settings
from experiments.running import screen
from experiments.training import checkpoint, program
from tests.experiments.runs import command, lasting, only_folder, record_of, stopping_at
from tests.experiments.tasks.test_text import folder as reviews

pytestmark = pytest.mark.usefixtures("compiled_once")

TOOLBOX = {
    "optimizer__ema_decay": 0.7,
    "optimizer__l2": 1e-4,
    "optimizer__learning_rate": 3e-2,
    "train__entropy_penalty": 0.01,
    "train__label_smoothing": 0.1,
    "train__num_microbatches": 2,
    "train__patience": 2,
    "train__steps": 40,
    "train__batch_size": 8,
    "seeds": "(0,1)",
    "train__seeds_at_once": 2,
}


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return reviews(tmp_path_factory.mktemp("films"))


def text_command(workdir, films):
    """A command on reviews: fields of recall's task are replaced by those of `text`."""
    others = [flag for flag in command(workdir, **TOOLBOX) if "config.task." not in flag]
    task = {"name": "text", "data_dir": films, "length": 32, "eval_lengths": "(48,)"}
    return others + [f"--config.task.{name}={value}" for name, value in task.items()]


@pytest.fixture(scope="module")
def toolbox(tmp_path_factory, films, compiled_once):
    workdir = tmp_path_factory.mktemp("toolbox")
    assert launch.main(text_command(workdir, films)) == 0
    return workdir


def lines_of(workdir):
    """Lines of both seeds, without what time they took."""
    paths = [only_folder(workdir) / f"seed-{seed}" / "metrics.jsonl" for seed in (0, 1)]
    return [[{**line, "seconds": None} for line in records.read(path)] for path in paths]


def saved_average(toolbox, films, step, index):
    """Digest of the average of one seed's parameters in the checkpoint of a step."""
    config, _, *overrides = text_command(toolbox, films)
    resolved = settings.load(config.partition("=")[2], overrides)
    built = program.build(resolved, settings.task(resolved), num_seeds=2)
    folder = only_folder(toolbox) / "seeds-0-1" / "checkpoints"
    average = checkpoint.restore(folder, step, built.abstract_state).state.average
    return checkpoint.digest(jax.tree.map(lambda x: np.asarray(x)[index], average))


def test_the_whole_toolbox_does_what_its_parts_do(toolbox, films):
    record = record_of(toolbox)
    assert record["groups"] == [[0, 1]] and record["outcome"] == "finished"
    items = record["task"]["items"]["train"]
    for seed, lines in zip("01", lines_of(toolbox), strict=True):
        entry = record["seeds"][seed]
        scores = {line["step"]: line["accuracy"] for line in lines if line["split"] == "validation"}
        best = max(scores, key=lambda step: (scores[step], -step))
        assert entry["best_step"] == best and entry["validation"]["accuracy"] == scores[best]
        after = [step for step in scores if step > best]
        assert entry["ended"] == ("patience" if len(after) == 2 else "steps")
        assert entry["sha256"]["best_params"] == saved_average(toolbox, films, best, int(seed))
        assert all(line["entropy"] > 0 for line in lines if line["split"] == "train")
        assert entry["test"]["accuracy"] > 0.7 and set(entry["test_at_length"]) == {"48"}
    assert max(entry["step"] for entry in record["seeds"].values()) * 8 > items  # a second epoch


@pytest.mark.parametrize("step", [9, 17])
def test_the_whole_toolbox_stopped_and_continued_gives_the_same_bits(
    toolbox, films, tmp_path, monkeypatch, step
):
    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(step))
        assert launch.main(text_command(tmp_path, films)) == 75
    assert launch.main(text_command(tmp_path, films)) == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(toolbox))
    assert lines_of(tmp_path) == lines_of(toolbox)


def test_profile_leaves_a_trace_of_a_run_and_nothing_else(tmp_path, capsys, monkeypatch):
    assert launch.main(command(tmp_path, "--profile")) == 0
    folder, before = only_folder(tmp_path), record_of(tmp_path)
    assert before["outcome"] == records.FINISHED
    now = provenance.gather()
    dirty = now | {"code_sha256": "0" * 64, "git": {"commit": "0", "dirty": True, "diff_sha256": "0"}}
    monkeypatch.setattr(provenance, "gather", lambda *_: dirty)
    for free, code in ((None, 0), (1000, 4)):
        assert list((folder / "profile").rglob("*.xplane.pb"))
        shutil.rmtree(folder / "profile")
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(measure, "free_memory", lambda _, free=free: free)
            assert launch.main(command(tmp_path, "--profile")) == code
        shown = capsys.readouterr().out
        assert f"trace of {program.PROFILED} training steps: {folder / 'profile'}" in shown
        assert ("no trace: the compiler plans" in shown) == (code == 4)
        assert record_of(tmp_path) == before
    assert not (folder / "profile").exists()
