"""Runs whose layers mix tokens by something else than attention, or by several things."""

import numpy as np
import pytest

import launch
from experiments import records
from experiments.config import settings
from experiments.diagnose import __main__ as diagnose
from experiments.diagnose.look import Looker
from experiments.diagnoses import is_look
from experiments.report import cards, compare, diagnosed, laws, page
from experiments.training import train
from tests.experiments import small
from tests.experiments.runs import command, only_folder, record_of


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, compiled_once):
    """Where a model of a state-space layer and a short window was trained."""
    file = tmp_path_factory.mktemp("config") / "mixed.py"
    file.write_text(
        "from ml_collections import ConfigDict\nfrom configs import recall\n"
        "def get_config():\n    c = recall.get_config('ssm')\n    c.name = 'mixed'\n"
        "    c.model.num_layers = 2\n    c.model.layers = 'attention,near'\n"
        "    c.mixers = ConfigDict({'near': {'name': 'window', 'window_size': 4}})\n    return c\n"
    )
    workdir = tmp_path_factory.mktemp("mixed")
    changes = {"model__num_layers": 2, "eval__diagnose": True, "eval__timed_steps": 0, "train__steps": 5}
    flags = [f"--config={file}", *command(workdir, **changes, task__eval_lengths="()")[1:]]
    assert launch.main(flags) == 0
    return workdir


def test_a_mixed_model_is_named_by_its_layers(mixed):
    record = record_of(mixed)
    told = record["attention"]
    assert (told["name"], told["text"], told["reach"]) == ("ssm+window", "ssm+window(window_size=4)", "all")
    assert [layer["name"] for layer in told["layers"]] == ["ssm", "window"]
    assert record["differences"]["mixers.near.window_size"] == 4
    assert record["outcome"] == records.FINISHED and record["flops"]["attention"] > 0
    (card,) = cards.cards([record])
    assert card.words.startswith("ssm: A selective state space") and "window: " in card.words
    assert "one variant alone" in laws.told(card.name)


def test_another_mixer_is_no_other_setting(mixed):
    """So that a claim may be made: it is what is compared."""
    one = record_of(mixed)
    fields = {"model": one["config"]["model"] | {"layers": "attention"}, "mixers": {}}
    other = one | {"config": one["config"] | fields}
    assert compare.labels(one, other) == compare.remarks(other)
    other["config"]["model"].pop("layers")
    other["config"].pop("mixers")  # as in a record that is older than they are
    assert compare.labels(one, other) == compare.remarks(other)


def test_the_layers_that_have_attention_are_looked_at(mixed, tmp_path, capsys):
    looks = [
        line
        for line in records.read(only_folder(mixed) / "seed-0" / "metrics.jsonl")
        if line["split"] == records.LOOK
    ]
    assert looks and all(list(look["heads"]) == ["1"] for look in looks)
    assert {"in_proj", "ahead", "out_proj", "query"} <= looks[0]["gradients"].keys()
    assert diagnose.main([str(only_folder(mixed)), f"--out={tmp_path / 'page.html'}"]) == 0
    assert "ssm+window(window_size=4) on recall" in capsys.readouterr().out


def test_without_attention_there_is_nothing_to_look_at():
    config = small.load("attention.name=gru", "model.num_layers=1")
    own = Looker(config, settings.task(config))
    look = own(0, 1, train.init_state(config, own.task, 0).params)
    assert look["findings"] == ["No layer has attention: there are no heads to look at."]
    assert look["heads"] == {} and {"ahead", "output"} <= look["gradients"].keys() and is_look(look)
    record = {"attention": {"text": "gru"}, "task": {"name": "recall"}}
    assert len(diagnosed.courses(record, "0", [look])) == 1
    found = {
        "look": look, "before": look, "maps": {}, "tokens": ["a"], "num_tokens": 1, "text": None,
        "attention": "gru", "task": "recall", "seed": 0, "outcome": records.FINISHED, "vectors": None,
        "trained_by": "", "code": "", "name": "gru", "identity": "0",
    }  # fmt: skip
    assert diagnosed.shown(found)["heads"] is None
    assert "no heads to look at" in page.diagnosis_html(found)


@pytest.mark.parametrize(
    "fields", [["attention.name=gru"], ["attention.name=ssm", "model.layers=attention,mean"]]
)
def test_they_learn_a_batch_by_heart(fields):
    batches = []

    def first(batch):
        batches.append(batch)
        return batches[0]

    fields += ["model.num_layers=2", "train.steps=60", "optimizer.learning_rate=3e-2"]
    losses = [float(small.trained(steps, *fields, changed=first)[1]["loss"]) for steps in (1, 60)]
    assert np.isfinite(losses).all() and losses[1] < losses[0] / 2, losses
