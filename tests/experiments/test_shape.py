"""Records have the shape that readers count on, and what has not is named."""

import copy

import pytest

from experiments import files, provenance, records, shape

RESULTS = sorted((provenance.ROOT / "results").rglob(records.RECORD))

SECONDS = {"median": 1.0, "low": 1.0, "high": 1.0, "n": 1}


def test_those_in_results_have_it():
    assert RESULTS
    for path in RESULTS:
        assert shape.wrong_record(files.read_json(path)) is None, path


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("config", {}, "there is no config.seeds"),
        ("config.seeds", "x", "config.seeds is no list"),
        ("task", {}, "there is no task.name"),
        ("attention", {}, "there is no attention.name"),
        ("provenance", {}, "there is no provenance.code_sha256"),
        ("outcome", 3, "outcome is no text"),
        ("provenance.packages", {}, "there is no provenance.packages.jax"),
        ("provenance.packages", {"jax": "1"}, "there is no provenance.packages.flax"),
        ("provenance.device.count", None, "provenance.device.count is no whole number of at least 0"),
        ("provenance.jax_settings", None, "provenance.jax_settings is no dictionary"),
        ("provenance.environment", {"A": 1}, "provenance.environment.A is no text"),
        ("provenance.git.status", None, "provenance.git.status is no list"),
        ("speed", {"training_step": SECONDS}, "there is no speed.tokens_per_second"),
        ("speed.forward", SECONDS | {"low": -1}, "speed.forward.low is no number of at least 0"),
        ("learning_rate", None, "learning_rate is null without config.optimizer.learning_rate_grid"),
        ("attention.capabilities", None, "attention.capabilities is no dictionary"),
        ("attention.capabilities", [], "attention.capabilities is no dictionary"),
        ("groups", [[]], "groups.0 is empty"),
        ("grid", {"x": {}}, "grid.x is named by no number"),
        ("seeds.0.timing", None, "seeds.0.timing is no dictionary"),
        ("sessions", [], "sessions is empty"),
        ("sessions", [{"config": {}, "began": ""}], "there is no sessions.0.argv"),
        ("sessions", [{"config": {}, "argv": []}], "there is no sessions.0.began"),
        ("config.model", None, "config.model is no dict"),
        ("config.train.flops", "x", "config.train.flops is no number of at least 0"),
        ("config.train.batch_size", -1, "config.train.batch_size is no whole number of at least 1"),
        ("task.length", True, "task.length is no whole number of at least 1"),
        ("exit_code", "x", "exit_code is no int"),
        ("flops", None, "flops is no dictionary"),
        ("parameters", None, "parameters is no dictionary"),
        ("memory.measured", 3, "memory.measured is no dictionary"),
        ("speed.training_step", 3, "speed.training_step is no dictionary"),
        ("seeds.0.test", "x", "seeds.0.test is no dictionary"),
        ("seeds.0.test.loss", "x", "seeds.0.test.loss is no int"),
        ("seeds.0.step", True, "seeds.0.step is no whole number of at least 0"),
        ("seeds.x", {"outcome": "finished"}, "seeds.x is named by no number"),
        ("groups", [3], "groups.0 is no list"),
        ("sessions", "x", "sessions is no list"),
        ("differences", [], "differences is no dict"),
    ],
)
def test_what_has_not_is_named(path, value, words):
    record = copy.deepcopy(files.read_json(RESULTS[0]))
    *parents, name = path.split(".")
    part = record
    for parent in parents:
        part = part[parent]
    part[name] = value
    assert shape.wrong_record(record) == words
