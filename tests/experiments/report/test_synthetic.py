"""The table of synthetic tasks, from the record of a run."""

import copy

import pytest

from experiments.report import synthetic
from tests.experiments.changed import changed
from tests.experiments.runs import record_of


@pytest.fixture(scope="module")
def like(undisturbed):
    """A record like a run's, with another attention, scores and what else is said."""
    given = record_of(undisturbed)

    def make(text, score, at=0.25, **changes):
        made = changed(copy.deepcopy(given), {"attention__text": text, **changes})
        made["seeds"]["0"] |= {"test": {"accuracy": score}, "test_at_length": {"24": {"accuracy": at}}}
        return made

    return make


def cells(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_row_for_each_attention_and_a_column_for_each_task(like):
    """Best first by the sum; what was not run of a task is blank, what did not fit says so."""
    weak, strong = like("weak", 0.5), like("strong", 1.0, seeds__0__ended="solved", seeds__0__step=15)
    longer = {"task__length": 32, "config__task__length": 32}
    other, unfit = like("strong", 0.75, **longer), like("third", 0.9, **longer)
    unfit["seeds"]["0"]["test_at_length"] = {}
    heads, _, *rows = cells(synthetic.section([weak, strong, other, unfit]))
    assert heads[1:7] == [
        "recall, 2 pairs in 16", "steps", "at 24", "recall, 2 pairs in 32", "steps", "at 24",
    ]  # fmt: skip
    assert [row[:7] for row in rows] == [
        ["`strong`", "100.0%", "15", "25.0%", "75.0%", "-", "25.0%"],
        ["`third`", "", "", "", "90.0%", "-", "does not fit"],
        ["`weak`", "50.0%", "-", "25.0%", "", "", ""],
    ]


def test_it_says_what_decoding_takes_and_what_is_not_shown(like):
    made = like("one", 0.5, decoding={"length": 16, "cache_bytes": 2048})
    section = synthetic.section([made])
    (heads, _, row), parameters = cells(section), made["parameters"]["total"]
    assert row[heads.index("cache")] == "2 KiB" and row[heads.index("params")] == f"{parameters:,}"
    assert synthetic.CAUTION in section and "Chance: recall, 2 pairs in 16 12.5%" in section


def test_what_did_not_end_well_is_said(like):
    made = like("one", 0.5)
    made["seeds"]["0"] = {"outcome": "diverged"}
    assert cells(synthetic.section([made]))[2][:3] == ["`one`", "diverged", ""]
    made |= {"seeds": {}, "outcome": "unfinished"}
    assert cells(synthetic.section([made]))[2][:3] == ["`one`", "unfinished", ""]


def test_records_that_do_not_compare_are_refused_and_other_processors_named(like):
    with pytest.raises(ValueError, match="do not compare: runtime abacus"):
        synthetic.section([like("one", 0.5), like("two", 0.5, provenance__device__runtime="abacus")])
    two = [like("one", 0.5), like("two", 0.5, provenance__machine__processor="abacus")]
    assert "; abacus with " in synthetic.section(two)
