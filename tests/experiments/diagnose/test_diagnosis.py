"""A run that is diagnosed: the same numbers, looks among its metrics, heat maps; and the command on a run."""

import html
import json
import re
import shutil

import pytest

import launch
from experiments import codes, diagnoses, files, records
from experiments.diagnose import __main__ as command
from experiments.diagnose import diagnosis, inside, look
from experiments.report import diagnosed, gathered, page
from experiments.running import screen
from experiments.training import trained
from tests.experiments.report.test_page import Reader
from tests.experiments.runs import command as of_launch
from tests.experiments.runs import lasting, only_folder, record_of, stopping_at

DIAGNOSED = {"eval__diagnose": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory, compiled_once):
    """The folder of a run that was diagnosed while it trained."""
    workdir = tmp_path_factory.mktemp("diagnosed")
    assert launch.main(of_launch(workdir, **DIAGNOSED)) == 0
    return only_folder(workdir)


def lines(folder, seed=0):
    """Of its metrics, without how long it took."""
    found = records.read(folder / f"seed-{seed}" / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def test_looking_changes_no_number(run, undisturbed):
    plain = only_folder(undisturbed)
    assert plain.name == run.name
    theirs, ours = lasting(record_of(undisturbed)), lasting(files.read_json(run / records.RECORD))
    assert ours["seeds"] == theirs["seeds"] and ours["summary"] == theirs["summary"]
    assert [line for line in lines(run) if line["split"] != records.LOOK] == lines(plain)


def test_it_looks_before_training_and_at_each_validation(run):
    looks = [line for line in lines(run) if line["split"] == records.LOOK]
    assert [look["step"] for look in looks] == [0, 5, 10, 15, 20]
    parts = {"query", "key", "value", "output", "convolution"}  # no feed-forward: the config has none
    assert all(set(look["gradients"]) == parts for look in looks)
    assert looks[0]["findings"] == []


def test_an_interrupted_run_looks_as_an_undisturbed_one(run, tmp_path, monkeypatch, compiled_once):
    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(7))
        assert launch.main(of_launch(tmp_path, **DIAGNOSED)) == codes.RESUMABLE
    assert launch.main(of_launch(tmp_path, **DIAGNOSED)) == 0
    assert lines(only_folder(tmp_path)) == lines(run)


def test_a_run_may_go_on_with_looks_or_without(run, tmp_path, monkeypatch, compiled_once):
    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(7))
        assert launch.main(of_launch(tmp_path)) == codes.RESUMABLE
    assert launch.main(of_launch(tmp_path, **DIAGNOSED)) == 0
    looks = [line["step"] for line in lines(only_folder(tmp_path)) if line["split"] == records.LOOK]
    assert looks == [10, 15, 20]
    ours, theirs = (files.read_json(only_folder(x) / records.RECORD) for x in (tmp_path, run.parent))
    assert lasting(ours)["seeds"] == lasting(theirs)["seeds"]


def test_heat_maps_that_are_not_there_are_made_by_the_same_command(run, tmp_path, compiled_once):
    shutil.copytree(run.parent, tmp_path / "copy")
    kept = diagnoses.path(tmp_path / "copy" / run.name, 0)
    before = diagnoses.read(kept)
    kept.unlink()
    assert launch.main(of_launch(tmp_path / "copy", **DIAGNOSED)) == 0
    again = diagnoses.read(kept)
    assert again["maps"] == before["maps"] and again["look"]["heads"] == before["look"]["heads"]


def test_a_look_that_fails_is_a_note_and_the_run_goes_on(tmp_path, monkeypatch, undisturbed, capsys):
    def broken(*_, **__):
        raise RuntimeError("RESOURCE_EXHAUSTED: no room for it")

    monkeypatch.setattr(inside, "of", broken)
    assert launch.main(of_launch(tmp_path, **DIAGNOSED)) == 0
    said = capsys.readouterr().out
    assert "no look at seed 0, step 0" in said and "no diagnosis" in said
    ours, theirs = (lasting(record_of(x)) for x in (tmp_path, undisturbed))
    assert ours["seeds"] == theirs["seeds"] and ours["outcome"] == records.FINISHED


def test_heat_maps_are_left_at_the_end(run):
    found = diagnoses.read(diagnoses.path(run, 0))
    assert found["look"]["step"] == files.read_json(run / records.RECORD)["seeds"]["0"]["best_step"]
    assert len(found["tokens"]) == found["num_tokens"] == 16
    for head in found["maps"]["0"]:
        assert [sum(row) for row in head] == pytest.approx([1] * 16, abs=1e-3)


def test_the_report_shows_it(run):
    text = page.html(gathered.gather([run.parent]), "Ours")
    said = " ".join("".join(Reader(text).text).split())
    assert "Inside the heads" in said and "5 looks took" in said
    assert "layer 0, head 0" in said and "is a rule of thumb" in said
    card = text[text.index('id="card-full"') :]
    assert "<svg" in card[: card.index("</article>")]


def test_the_report_lists_what_the_last_look_found(run, tmp_path):
    """The diagnosis is of another step, and found nothing."""
    shutil.copytree(run, tmp_path / run.name)
    metrics, kept = tmp_path / run.name / "seed-0" / "metrics.jsonl", diagnoses.path(tmp_path / run.name, 0)
    changed = records.read(metrics)
    changed[-1]["findings"] = ["Layer 0 does as it likes."]
    assert changed[-1]["split"] == records.LOOK
    metrics.write_text("".join(json.dumps(line) + "\n" for line in changed))
    found = diagnoses.read(kept)
    found["look"]["findings"] = []
    files.write_json(kept, found)
    said = " ".join(" ".join(Reader(page.html(gathered.gather([tmp_path]), "Ours")).text).split())
    assert "1 finding" in said and "Seed 0 at step 20, the last look while it trained:" in said
    assert "Layer 0 does as it likes." in said and "Nothing stands out." in said


def test_the_command_diagnoses_a_text(run, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert command.main([str(run), "--text=1 2 3 4 5 6 7 8 9", f"--out={out}"]) == 0
    said = capsys.readouterr().out
    assert "| layer | head |" in said and said.splitlines()[-2] == str(out)
    kept = diagnoses.read(run.parent / run.name / diagnoses.FOLDER / said.splitlines()[-1].split("/")[-1])
    assert kept["tokens"] == list("123456789") and kept["text"] == "1 2 3 4 5 6 7 8 9"
    read = Reader(out.read_text(encoding="utf-8"))
    assert sum(tag == "svg" for tag, _ in read.elements) == sum(len(own) for own in kept["maps"].values())


def test_a_word_in_two_texts(run, tmp_path, capsys):
    texts = ["--text=1 2 3 4", "--other=4 3 2 1", "--word=2", f"--out={tmp_path}/page.html"]
    assert command.main([str(run), *texts]) == 0
    said = capsys.readouterr().out
    assert "“2” in “1 2 3 4” and in “4 3 2 1”" in said and "| layer | head | query | key |" in said
    same = ["--text=1 2 3 4", "--other=1 2 3 4", "--word=3", f"--out={tmp_path}/page.html"]
    assert command.main([str(run), *same]) == 0
    said = capsys.readouterr().out
    (row,) = re.findall(r"^\| 0 \| 0 \| (1\.000) \| (1\.000) \|$", said, re.MULTILINE)
    assert row == ("1.000", "1.000") and diagnosed.SAME in said
    read = Reader((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert html.escape(diagnosed.SAME) in html.escape("".join(read.text))


def test_texts_that_differ_before_the_word_are_not_called_the_same(run, tmp_path, capsys):
    texts = ["--text=5 2 3 4", "--other=6 2 3 4", "--word=2", f"--out={tmp_path}/page.html"]
    assert command.main([str(run), *texts]) == 0
    assert diagnosed.SAME not in capsys.readouterr().out


def test_a_word_is_sought_before_anything_is_computed(run, tmp_path, monkeypatch):
    def computed(*_):
        raise AssertionError

    monkeypatch.setattr(inside, "of", computed)
    words = ["--text=1 2", "--other=1", "--word=9", f"--out={tmp_path}/page.html"]
    assert command.main([str(run), *words]) == 2


def test_the_terminal_says_what_is_looked_at(run, tmp_path, capsys):
    assert command.main([str(run), f"--out={tmp_path}/page.html"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("full on recall, seed 0, step ")
    assert "Of 12 validation items of 16 tokens each" in said and "before training; the head of" in said
    assert "Norm of the gradient by part" in said and "Trained by " in said


def test_learned_positions_say_how_long_a_text_may_be(run):
    model = trained.load(run)
    assert diagnosis.longest(model) == look.TOKENS
    with model.config.unlocked():
        model.config.model.positions = "learned"
    assert diagnosis.longest(model) == 24


def test_a_model_that_is_not_trained_is_not_called_sound():
    assert diagnosed.findings({"step": 0, "findings": []}) == [diagnosed.UNTRAINED]
    assert diagnosed.findings({"step": 1, "findings": []}) == [diagnosed.NOTHING]


@pytest.mark.parametrize(
    "given, told",
    [
        (["--text="], "text has 0 tokens"),
        (["--text=17 x"], "must be numbers below 16"),
        (["--text=1 2", "--other=1", "--word=9"], "word '9' is not in text"),
        (["--text=1 2", "--other=1", "--word=2"], "word '2' is not in other"),
        (["--text=1", "--other=1", "--word="], "word has 0 tokens"),
        (["--text=1", "--other=", "--word=1"], "other has 0 tokens; it must have 1 to 1024"),
        (["--seed=5"], "no trained parameters of seed 5; it has those of seeds: 0"),
    ],
)
def test_wrong_use_is_one_line(run, tmp_path, capsys, given, told):
    assert command.main([str(run), *given, f"--out={tmp_path}/page.html"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("diagnose: ") and told in error and error.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_what_is_no_run_or_no_diagnosis_is_named(run, tmp_path, capsys):
    assert command.main([str(tmp_path)]) == 2
    assert "there is no record.json" in capsys.readouterr().err
    found = diagnoses.read(diagnoses.path(run, 0))
    look = {**found["look"], "heads": {"0": {**found["look"]["heads"]["0"], "reach": []}}}
    changes = {
        "tokens": (["a"], []), "schema": (0,), "vectors": ({},), "before": ({"heads": {}},),
        "maps": ({"0": [1]}, {}), "look": (look, {**found["look"], "heads": {}}),
    }  # fmt: skip
    damage = [{**found, name: value} for name, values in changes.items() for value in values]
    for wrong in ([], *damage):
        (tmp_path / "wrong.json").write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=r"wrong\.json is not a diagnosis"):
            diagnoses.read(tmp_path / "wrong.json")


def test_other_data_are_not_taken_for_those_of_the_run(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / run.name)
    record = files.read_json(run / records.RECORD)
    record["task"]["sha256"] = "0"
    files.write_json(tmp_path / run.name / records.RECORD, record)
    assert command.main([str(tmp_path / run.name), f"--out={tmp_path}/page.html"]) == 2
    assert "the data's sha256 was 0, and is" in capsys.readouterr().err


def test_a_trained_model_is_had_back(run):
    model = trained.load(run)
    assert (model.seed, model.step) == (0, files.read_json(run / records.RECORD)["seeds"]["0"]["best_step"])
    assert model.config.attention.name == "full" and model.task.length == 16


def test_what_cannot_be_kept_is_told_first(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / run.name)
    shutil.rmtree(tmp_path / run.name / diagnoses.FOLDER)
    (tmp_path / run.name / diagnoses.FOLDER).write_text("in the way")
    assert command.main([str(tmp_path / run.name), f"--out={tmp_path}/page.html"]) == 2
    said, told = capsys.readouterr()
    assert "| layer | head |" in said and str(tmp_path / "page.html") in said
    assert told.startswith("diagnose: not kept: ") and told.count("\n") == 1


def test_a_record_alone_says_how_to_have_the_model(run, tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    shutil.copy(run / records.RECORD, tmp_path / "kept")
    assert command.main([str(tmp_path / "kept")]) == 2
    told = capsys.readouterr().err
    assert "has no checkpoint of step" in told and f"experiments.reproduce {tmp_path}/kept" in told
