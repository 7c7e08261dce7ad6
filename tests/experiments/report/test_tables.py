"""The table of results: like beside like, best first, nothing blank; and how numbers are written."""

import io

import pytest
from rich.console import Console

from experiments import records
from experiments.report import compare, tables
from tests.experiments.report.test_compare import record


def complete(name, values=(2.0,), outcome=records.FINISHED, **more):
    made = record(name, values, **more)
    made["outcome"] = outcome
    made["config"]["optimizer"] = {"learning_rate": 3e-3, "learning_rate_grid": []}
    made["learning_rate"] = 3e-3
    made["task"] |= {"name": "bytes", "length": 256, "eval_lengths": [256, 512], "chance": {"bits": 8.0}}
    made["task"]["baselines"] = {"unigram": 4.9}
    made["attention"] = {"text": f"{name}(size=[3])", "reach": "all"}
    made["parameters"] = {"total": 12345, "by_array": {}}
    made["flops"] = {"training": 10**9, "attention": 10**8}
    made["memory"], made["speed"] = {}, {}
    return made


def shown(this, others=(), complaints=()):
    stream = io.StringIO()
    tables.results(Console(file=stream, width=250, soft_wrap=True), this, list(others), list(complaints))
    return stream.getvalue()


def test_best_first_this_run_marked_chance_and_reasons_named():
    this, better = complete("ours", (2.0, 2.2)), complete("better", (1.0,))
    for entry in better["seeds"].values():
        entry["test_at_length"] = {"512": {"bits": 1.25}}
    failed = complete(
        "failed", outcome="out of memory (compiled)", seeds={"0": {"outcome": "out of memory (compiled)"}}
    )
    other = complete("other", config__train__steps=7)
    text = shown(this, [failed, other, better], ["broken/record.json is not JSON"])
    places = [text.index(name) for name in ("better ", "> ours ", "failed ")]
    assert places == sorted(places)
    for expected in (
        "lower is better", "2.1000", "± 95%", "1.3", "at 512", "1.2500", "out of memory (compiled)",
        "0 (1 failed)", "chance", "unigram", "4.9000", "8 G", "12,345", "ours(size=[3])",
        "not tested: better: a paired t-test wants 8 seeds in common", "not tested: failed: failed seeds",
        "not comparable: other-abcd1234: budget 7 steps, not 100 steps",
        "not readable: broken/record.json",
    ):  # fmt: skip
        assert expected in text, expected


def test_what_was_tested_shows_its_p():
    ours = complete("ours", [2.0 + n / 100 for n in range(8)])
    theirs = complete("theirs", [2.5 + n * n / 1000 for n in range(8)])
    text = shown(ours, [theirs, complete("few", (2.0,))])
    assert "p (Holm)" in text and "not tested: few: a paired" in text


def test_the_p_on_screen_is_the_one_that_is_published():
    ours = complete("ours", [1 + n / 100 for n in range(8)])
    near, far = (complete(f"{by}", [1 + by + n / 100 + n * n / 1000 for n in range(8)]) for by in (0.01, 1))
    rounded = complete("rounded", [1 + n / 100 + 1e-6 * (1 + n % 2) for n in range(8)])
    rows, _ = compare.table(ours, [near, far, rounded])
    on_screen = {row["record"]["name"]: row["claim"]["p"] for row in rows if row["claim"]}
    published = compare.claims([rounded, far, near, ours])
    for name, p in on_screen.items():
        assert [p] == [
            c["p"] for c in published if {c["better"]["name"], c["worse"]["name"]} == {"ours", name}
        ]
    raw = compare.paired(compare.scores(ours, "bits"), compare.scores(far, "bits"))
    assert on_screen["rounded"] == 1 and raw is not None and on_screen["1"] > 3 * raw


def test_another_length_has_its_interval_failures_and_chance():
    ours, lost = (
        complete("ours", (2.0, 2.2, 2.1)),
        complete("lost") | {"not_evaluated": {"512": "no room: 9"}},
    )
    for seed, value in (("0", 3.0), ("1", 3.2)):
        ours["seeds"][seed] |= {"step": 100, "test_at_length": {"512": {"bits": value}}}
    ours["seeds"]["0"]["at_chance_at_length"] = {"512": True}
    ours["seeds"]["2"] = {"outcome": "diverged", "reason": "loss is nan"}
    expected = {"at 512": "3.1000 ± 1.3 (n=2, 1 failed), 1 of 2 at chance"}
    assert tables.at_lengths(ours) == expected and expected["at 512"] in shown(ours)
    assert tables.at_lengths(lost) == {"at 512": "no room"}


def test_numbers_are_written_with_their_units():
    assert [tables.in_bytes(n) for n in (None, 0, 1536, 3 * 2**30)] == ["-", "0 B", "1.5 KiB", "3 GiB"]
    assert [tables.in_flops(n) for n in (999, 2.5e9, 1e15)] == ["999", "2.5 G", "1 P"]


def test_a_narrow_terminal_gets_three_tables_with_the_same_rows():
    this, other = complete("ours"), complete("ours", (1.0,), identity="ef012345")
    stream = io.StringIO()
    tables.results(Console(file=stream, width=80), this, [other], [])
    text = stream.getvalue()
    assert text.count("ours-abcd1234") == 3 and text.count("ours-ef012345") == 4  # and it was not tested
    assert text.count("chance") == 1 and text.count("8 G") == 2
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("values", "failed", "expected"),
    [([], 1, "diverged"), ([0.5], 0, "0.5000 (n=1)"), ([0.5, 0.5], 1, "0.5000 ± 0 (n=2, 1 failed)")],
)
def test_a_score_in_one_phrase_says_how_many_and_how_sure(values, failed, expected):
    assert tables.score(compare.interval(values), failed, "diverged") == expected
