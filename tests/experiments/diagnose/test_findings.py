"""What is wrong is said, and nothing of what is sound."""

import copy

import pytest

from experiments.diagnose.findings import findings
from tests.experiments.changed import changed

EVEN = {
    "entropy": [2.0, 2.5],
    "evenness": [0.6, 0.7],
    "from_uniform": [0.5, 0.4],
    "from_nearest": [0.6, 0.6],
    "nearest": [1, 0],
}
SOUND = {
    "step": 100,
    "heads": {"0": EVEN, "1": copy.deepcopy(EVEN)},
    "gradients": {
        "query": {"0": 0.02, "1": 0.05}, "value": {"0": 0.3, "1": 0.2}, "output": {"0": 0.4, "1": 1.5},
    },
    "observed": {
        "0": {"buckets": {"values": [9.0, 12.0], "meaning": "buckets in effect, of 16", "least": 2.0}},
    },
}  # fmt: skip
UNIFORM = {
    "entropy": [3.0, 3.0],
    "evenness": [0.999, 0.998],
    "from_uniform": [0.01, 0.02],
    "from_nearest": [0.01, 0.01],
    "nearest": [1, 0],
}


def look(**changes):
    """A sound look with other numbers, "heads.0.evenness" written as heads__0__evenness."""
    return changed(copy.deepcopy(SOUND), changes)


BEFORE = look(step=0, heads={"0": UNIFORM, "1": UNIFORM})


def test_a_sound_model_is_not_talked_about():
    assert findings(look(), BEFORE) == []
    assert findings(look(), look(step=0)) == []


def test_before_training_heads_may_be_uniform_and_alike():
    assert findings(BEFORE, BEFORE) == []


def test_a_head_that_stays_uniform_while_others_move_is_lazy():
    (told,) = findings(look(heads__1__from_uniform=[0.4, 0.03]), BEFORE)
    assert told.startswith(
        "Layer 1, head 1 is lazy: near uniform, as it began (3.0% of its weight is elsewhere"
    )


def test_a_head_that_became_uniform_is_told_apart():
    (told,) = findings(look(heads__0__from_uniform=[0.0, 0.4]), look(step=0))
    assert told.startswith("Layer 0, head 0 has become near uniform") and "50% was before" in told


def test_a_model_that_has_not_begun_has_no_lazy_heads():
    (told,) = findings(look(heads={"0": UNIFORM, "1": UNIFORM}), BEFORE)
    assert "has not begun to attend" in told and "lazy" in told


def test_heads_alike_are_named_once():
    (told,) = findings(look(heads__1__from_nearest=[0.02, 0.02]), BEFORE)
    assert told == "Layer 1, heads 0 and 1 attend alike: 2.0% of their weight differs."


def test_spread_attention():
    (told,) = findings(look(heads__0__evenness=[0.97, 0.98], heads__1__evenness=[0.97, 0.97]), BEFORE)
    assert "temperature below 1" in told


def test_an_exploding_part():
    (told,) = findings(look(gradients__value={"0": 0.3, "1": 90.0}), BEFORE)
    assert told == (
        "Layer 1, the gradient of value explodes: its norm is 90, the median of all parts is 0.35, and "
        "before training its own was 0.2."
    )
    (told,) = findings(look(gradients__query={"0": 0.3, "1": None}), BEFORE)
    assert told == "Layer 1, the gradient of query is not finite."


def test_a_part_that_was_always_larger_than_others_does_not_explode():
    large = {"gradients__value": {"0": 0.3, "1": 90.0}}
    assert findings(look(**large), look(step=0, **large)) == []


@pytest.mark.parametrize("times, expected", [(2, 0), (30, 1), (1000, 1)])
def test_all_parts_at_once(times, expected):
    many = {
        part: {layer: times * norm for layer, norm in own.items()} for part, own in SOUND["gradients"].items()
    }
    told = findings(look(gradients=many), BEFORE)
    assert len(told) == expected and all(line.startswith(f"Gradients explode: {times:.3g}") for line in told)


def test_small_gradients_do_not_explode_however_unequal():
    assert (
        findings(look(gradients={"query": {"0": 1e-6}, "key": {"0": 1e-6}, "value": {"0": 0.9}}), BEFORE)
        == []
    )


def test_what_a_variant_has_to_show():
    (told,) = findings(look(observed__0__buckets__values=[9.0, 1.2]), BEFORE)
    assert told == "Layer 0, head 1: 1.2 buckets in effect, of 16; below 2 is too few."


@pytest.mark.parametrize("name", ["evenness", "from_nearest"])
def test_what_is_not_known_is_no_finding(name):
    unknown = look(**{f"heads__{layer}__{name}": [None, None] for layer in "01"})
    assert findings(unknown, BEFORE) == findings(look(), unknown) == []


def test_where_nothing_can_be_told_that_is_said():
    unknown = {f"heads__{layer}__from_uniform": [None, None] for layer in "01"}
    (told,) = findings(look(**unknown), BEFORE)
    assert told == "No row sees 8 keys: how heads spread cannot be judged."
    broken = look(heads__0__entropy=[None, 2.0], heads__0__from_uniform=[None, 0.5])
    assert findings(broken, BEFORE) == ["Layer 0, head 0: its weights are not finite."]


def test_a_head_of_which_nothing_was_known_before():
    before = look(step=0, heads__0__from_uniform=[None, None])
    (told,) = findings(look(heads__0__from_uniform=[0.01, 0.4]), before)
    assert told == "Layer 0, head 0 is near uniform: 1.0% of its weight is elsewhere."
