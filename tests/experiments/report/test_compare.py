"""Like stands beside like, and nothing is claimed that was not tested."""

import copy

import numpy as np
import pytest
from scipy import stats

from experiments import provenance, records
from experiments.report import compare
from tests.experiments.changed import changed

HERE = provenance.gather()
DEVICES = HERE["device"]["count"]


def record(name="ours", values=(2.0,), better="lower", **changes):
    made = {
        "schema": records.SCHEMA,
        "name": name,
        "identity": "abcd1234",
        "outcome": "finished",
        "not_citable": [],
        "groups": [[0]],
        "config": {
            "name": name,
            "seeds": list(range(len(values))),
            "attention": {"name": name},
            "task": {"name": "bytes", "length": 256},
            "model": {"num_heads": 4},
            "train": {"steps": 100, "batch_size": 8},
        },
        "task": {"name": "bytes", "version": 1, "sha256": "f" * 64, "primary": "bits", "better": better},
        "provenance": copy.deepcopy(HERE),
        "seeds": {str(n): {"outcome": "finished", "test": {"bits": v}} for n, v in enumerate(values)},
    }
    return changed(made, changes)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("task__name", "recall", "its task is recall"),
        ("config__task__length", 512, "task.length 512, not 256"),
        ("task__version", 2, "version of the task 2, not 1"),
        ("task__sha256", "e" * 64, "data eeee"),
        ("config__train__steps", 50, "budget 50 steps, not 100 steps"),
        ("config__train__batch_size", 4, "batch size 4, not 8"),
        ("provenance__python", "3.9", "Python 3.9"),
        ("provenance__machine__processor", "abacus", "processor abacus"),
        ("provenance__device__kind", "H200", f"device {DEVICES} x cpu H200"),
        ("schema", 0, "schema is 0, not 2"),
    ],
)
def test_refused_with_the_reason(path, value, reason):
    other = record("other", **{path: value})
    reasons = compare.refusals(record(), other)
    assert len(reasons) == 1 and reason in reasons[0]
    rows, refused = compare.table(record(), [other])
    assert len(rows) == 1 and refused == [f"other-abcd1234: {reasons[0]}"]


def paid(name, steps, flops):
    return record(name, config__train={"steps": steps, "flops": flops, "batch_size": 8})


def test_with_equal_flops_the_number_of_steps_may_differ_and_is_told():
    ours, theirs = paid("ours", 100, 1e12), paid("theirs", 1500, 1e12)
    assert compare.refusals(ours, theirs) == [] and compare.labels(ours, theirs) == ["1,500 steps"]
    assert compare.remarks(ours) == ["100 steps"]
    assert compare.claims([paid("ours", 100, 1e12) | {"seeds": {}}, theirs])[0]["untested"].startswith(
        "a paired"
    )


@pytest.mark.parametrize("other", [paid("other", 100, 2e12), record("other")])
def test_other_flops_and_none_are_refused(other):
    theirs = "100 steps" if other["config"]["train"].get("flops") is None else "2000000000000.0 FLOPs"
    said = [f"budget {theirs}, not 1000000000000.0 FLOPs"]
    assert compare.refusals(paid("ours", 100, 1e12), other) == said


def test_those_refused_for_the_same_reason_share_a_line():
    others = [record(name, task__name="recall") for name in ("one", "two")]
    assert compare.table(record(), others)[1] == ["one-abcd1234, two-abcd1234: its task is recall"]


def test_attention_name_and_seeds_may_differ_other_settings_and_code_are_labelled():
    other = record("other", config__attention={"name": "lsh", "num_hashes": 2}, config__seeds=[0, 1])
    assert compare.refusals(record(), other) == [] and compare.labels(record(), other) == []
    assert compare.labels(other, record()) == []
    other["config"]["model"]["num_heads"] = 2
    other["provenance"]["code_sha256"] = "0" * 64
    assert compare.refusals(record(), other) == []
    assert compare.labels(record(), other) == ["model.num_heads=2", "other code"]


def test_what_belongs_beside_a_number_is_there():
    found = record(values=(0.5, 0.6))
    assert compare.remarks(found) == []
    found["seeds"]["0"] |= {"step": 40, "at_chance": True}
    found["seeds"]["1"] |= {"step": 100, "at_chance": False}
    found["not_citable"], found["outcome"] = ["the working tree differed"], "interrupted"
    expected = ["stopped at step 40-100", "1 of 2 at chance", "interrupted", "not citable"]
    assert compare.remarks(found) == compare.labels(record(), found) == expected
    rows, _ = compare.table(found, [])
    assert rows[0]["labels"] == expected


def test_a_rate_that_was_chosen_is_said_and_so_is_the_edge():
    found = record() | {"grid": {"0.001": {}, "0.01": {}, "0.1": {}}, "learning_rate": 0.01}
    assert compare.remarks(found) == ["learning rate 0.01"]
    assert compare.remarks(found | {"learning_rate": 0.1}) == ["learning rate 0.1, the edge of its grid"]


def test_a_rate_that_a_grid_replaces_is_no_label():
    ours, theirs = record(), record("other")
    ours["config"]["optimizer"] = {"learning_rate": 0.1, "learning_rate_grid": []}
    theirs["config"]["optimizer"] = {"learning_rate": 0.2, "learning_rate_grid": [0.3]}
    assert compare.labels(ours, theirs) == ["optimizer.learning_rate_grid=[0.3]"]
    expected = ["optimizer.learning_rate=0.1", "optimizer.learning_rate_grid=[]"]
    assert compare.labels(theirs, ours) == expected


def test_claims_are_of_every_pair_that_can_be_tested():
    noise = np.random.default_rng(0).normal(size=(3, 9)) / 100
    low, high, same = (
        record(name, tuple(base + noise[i]))
        for i, (name, base) in enumerate([("low", 1.0), ("high", 2.0), ("same", 1.0)])
    )
    few = record("few")
    every = compare.claims([high, low, same, few])
    assert len(every) == 6
    found = [claim for claim in every if not claim["untested"]]
    assert len(found) == 3
    reasons = {claim["untested"] for claim in every if few in (claim["better"], claim["worse"])}
    assert reasons == {"a paired t-test wants 8 seeds in common"}
    rows, _ = compare.table(low, [few, same, high])
    of_low = {row["record"]["name"]: row["claim"] for row in rows}
    assert of_low["low"] is None and of_low["high"]["p"] == found[0]["p"] and of_low["few"]["untested"]
    shown = {(claim["better"]["name"], claim["worse"]["name"]) for claim in found if claim["p"] < 0.05}
    assert shown == {("low", "high"), ("same", "high")}
    raw = compare.paired(compare.scores(low, "bits"), compare.scores(high, "bits"))
    by_pair = {frozenset((claim["better"]["name"], claim["worse"]["name"])): claim["p"] for claim in found}
    assert raw is not None and by_pair[frozenset(("low", "high"))] >= 2 * raw


def test_pairs_that_never_vary_say_how():
    values = [1 + n / 100 for n in range(8)]
    one, same, above = (record(str(by), [value + by for value in values]) for by in (0, 0.0, 0.5))
    reasons = [claim["untested"] for claim in compare.claims([one, same, above])]
    assert reasons == ["equal in every seed", *["all seeds differ alike"] * 2]


def test_seeds_that_can_be_continued_did_not_fail():
    outcomes = ("finished", "diverged", "interrupted", "unfinished", "out of memory")
    found = record(seeds={str(n): {"outcome": outcome} for n, outcome in enumerate(outcomes)})
    assert compare.failures(found) == ["1", "4"]


def test_nothing_is_claimed_where_seeds_failed():
    means = {"whole": 2.0, "lucky": 1.0, "later": 3.0}
    whole, lucky, later = (record(name, [m + m * n / 100 for n in range(9)]) for name, m in means.items())
    lucky["seeds"]["3"] = {"outcome": "diverged"}
    later["config"]["seeds"].append(9)
    later["seeds"]["9"] = {"outcome": "diverged"}
    # Of whole and later no seed that both were asked for has failed.
    found = compare.claims([whole, lucky, later])
    assert [claim["untested"] for claim in found] == ["failed seeds", None, "failed seeds"]
    assert found[0]["p"] is None and found[1]["p"] < 0.05
    rows, _ = compare.table(whole, [lucky, record("none", seeds={"0": {"outcome": "diverged"}})])
    assert [row["record"]["name"] for row in rows] == ["whole", "lucky", "none"]


@pytest.mark.parametrize(
    ("field", "value", "untested"),
    [
        ("model__num_heads", 2, "they differ in model.num_heads"),
        ("optimizer", {"learning_rate_grid": [0.1, 0.2]}, "they differ in optimizer.learning_rate_grid"),
        ("train__seeds_at_once", 1, None),
        ("task__data_dir", "elsewhere", None),
        ("attention", {"name": "lsh", "num_hashes": 2}, None),
    ],
)
def test_only_records_that_were_treated_alike_are_tested(field, value, untested):
    one = record("one", [1.0 + n / 100 for n in range(8)])
    other = record("other", [2.0 + n / 90 for n in range(8)], **{f"config__{field}": value})
    (claim,) = compare.claims([one, other])
    assert claim["untested"] == untested and (claim["p"] is None) == (untested is not None)


def test_a_claim_tells_of_other_code_and_of_what_is_not_citable():
    one = record("one", [1.0 + n / 100 for n in range(8)])
    other = record("other", [2.0 + n / 90 for n in range(8)])
    assert compare.claims([one, other])[0]["doubts"] == []
    other["provenance"]["code_sha256"], one["not_citable"] = "0" * 64, ["the working tree differed"]
    assert compare.claims([one, other])[0]["doubts"] == ["other code", "not citable"]


def test_table_puts_the_best_first_and_failures_last():
    this, worse = record(values=(2.0, 2.2)), record("worse", (3.0, 3.0))
    failed = record("failed", seeds={"0": {"outcome": "diverged"}, "1": {"outcome": "out of memory"}})
    rows, refused = compare.table(this, [failed, worse])
    assert [row["record"]["name"] for row in rows] == ["ours", "worse", "failed"] and not refused
    assert [row["failed"] for row in rows] == [0, 0, 2]
    assert rows[0]["this"] and not rows[1]["this"]
    assert rows[2]["score"] == {"mean": None, "half_width": None, "n": 0}
    rows, _ = compare.table(record(better="higher"), [record("higher", (3.0,), "higher")])
    assert [row["record"]["name"] for row in rows] == ["higher", "ours"]


def test_rank_goes_by_the_seeds_that_all_share():
    one, several = record("one", (1.1,)), record("several", (1.0, 2.0, 2.0))
    other = record("other", seeds={"7": {"outcome": "finished", "test": {"bits": 1.5}}})
    assert [row["record"]["name"] for row in compare.table(one, [several])[0]] == ["several", "one"]
    assert [row["score"]["n"] for row in compare.table(one, [several])[0]] == [3, 1]
    # None is shared by all three.
    rows, _ = compare.table(one, [several, other])
    assert [row["record"]["name"] for row in rows] == ["one", "other", "several"]


def test_interval_is_students():
    values = [1.0, 2.0, 4.0]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    found = compare.interval(values)
    assert found["n"] == 3 and found["mean"] == pytest.approx(7 / 3)
    assert found["half_width"] == pytest.approx((high - low) / 2)
    assert compare.interval([5.0]) == {"mean": 5.0, "half_width": None, "n": 1}


def test_nothing_is_tested_below_eight_pairs_and_pairs_go_by_seed():
    rng = np.random.default_rng(0)
    ours = {str(n): float(v) for n, v in enumerate(rng.normal(size=9))}
    theirs = {seed: value + 0.3 + 0.01 * rng.normal() for seed, value in reversed(ours.items())}
    expected = stats.ttest_rel([ours[s] for s in ours], [theirs[s] for s in ours])
    assert compare.paired(ours, theirs) == pytest.approx(expected.pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    few = dict(list(ours.items())[:7])
    assert compare.paired(few, theirs) is None
    assert compare.paired(ours, ours) is None


@pytest.mark.parametrize(("scale", "rounded"), [(0.01, 9e-5), (500.0, 0.04)])
def test_a_difference_that_rounding_can_make_is_none(scale, rounded):
    ours = {str(n): scale * (1 + n / 100) for n in range(8)}
    wobble = [1, 1.01] * 4
    near, far = (
        {seed: v + by * w for (seed, v), w in zip(ours.items(), wobble, strict=True)}
        for by in (rounded, 2 * rounded)
    )
    p = compare.paired(ours, far)
    assert compare.paired(ours, near) == 1 and p is not None and p < 1e-9


def test_holm_by_hand():
    assert compare.holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert compare.holm([0.6, 0.7]) == [1.0, 1.0]
    assert compare.holm([]) == []
