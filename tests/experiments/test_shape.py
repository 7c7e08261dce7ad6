"""Records have the shape that readers count on, and what has not is named."""

import copy

import pytest

from experiments import files, provenance, records, shape

RESULTS = sorted((provenance.ROOT / "results").glob(f"*/{records.RECORD}"))


def test_those_in_results_have_it():
    assert RESULTS
    for path in RESULTS:
        assert shape.wrong(files.read_json(path), shape.RECORD) is None, path


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("config", {}, "there is no config.seeds"),
        ("config.seeds", "x", "config.seeds is no list"),
        ("task", {}, "there is no task.name"),
        ("attention", {}, "there is no attention.name"),
        ("provenance", {}, "there is no provenance.code_sha256"),
        ("outcome", 3, "outcome is no text"),
        ("exit_code", "x", "exit_code is no int"),
        ("flops", None, "flops is no dictionary"),
        ("parameters", None, "parameters is no dictionary"),
        ("memory.measured", 3, "memory.measured is no dictionary"),
        ("speed.training_step", 3, "speed.training_step is no dictionary"),
        ("seeds.0.test", "x", "seeds.0.test is no dictionary"),
        ("seeds.0.test.loss", "x", "seeds.0.test.loss is no int"),
        ("seeds.0.step", True, "seeds.0.step is no int"),
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
    assert shape.wrong(record, shape.RECORD) == words
