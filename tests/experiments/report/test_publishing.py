"""README's blocks and its picture, from records and cells made by hand."""

import pytest

from experiments import files, provenance, records
from experiments.benchmark import __main__ as benchmark
from experiments.benchmark import page, peers, savings
from experiments.model import registry
from experiments.plan import page as plans
from experiments.report import figures, readme, sections
from tests.experiments.benchmark.test_benchmark import cell
from tests.experiments.report.test_tables import complete

HERE = provenance.gather()


def with_speed(made):
    made["speed"] = {
        "training_step": {"median": 0.2, "low": 0.19, "high": 0.22, "n": 10},
        "tokens_per_second": 10240.0,
        "compile_seconds": {"training_step": 1.5},
    }
    measured = {"training_step": {"bytes": 2**20, "method": "by hand"}}
    made["memory"] = {"training_step": {"temporaries": 2**20}, "measured": measured}
    return made


def test_readme_is_in_step_with_results_and_code():
    text = readme.README.read_text(encoding="utf-8")
    assert readme.filled(text) == text


@pytest.mark.parametrize(
    ("at", "made"),
    [
        (benchmark.PAGE, lambda: page.page(files.read_json(benchmark.RESULTS))),
        (savings.PAGE, lambda: savings.page(files.read_json(savings.RESULTS))),
        (plans.PAGE, lambda: plans.page(plans.kept())),
    ],
    ids=["performance", "savings", "plans"],
)
def test_pages_are_in_step_with_what_they_are_made_of(at, made):
    assert at.read_text(encoding="utf-8") == made()


def test_a_text_without_a_block_is_refused():
    with pytest.raises(ValueError, match="no block <!-- results -->"):
        readme.filled("# nothing")


def test_every_outcome_has_its_row():
    group = [with_speed(complete("full", (2.0,)))]
    for outcome in (records.DIVERGED, records.OUT_OF_MEMORY, records.OUT_OF_MEMORY_COMPILED):
        group.append(complete(outcome, outcome=outcome, seeds={"0": {"outcome": outcome}}))
    group.append(complete("killed", outcome=records.UNFINISHED, seeds={}))
    lines = sections.task_section(group).splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == 5 and rows[0].startswith("| `full(size=[3])` | 2.0000 (n=1) | 200 (190-220) | 10,240")
    for outcome in (
        records.DIVERGED,
        records.OUT_OF_MEMORY,
        records.OUT_OF_MEMORY_COMPILED,
        records.UNFINISHED,
    ):
        assert any(outcome in row for row in rows), outcome
    assert "chance 8, unigram 4.9. Learning rate of all: 0.003, not tuned. No difference was" in lines[-1]


def test_claims_are_in_the_text():
    low = complete("low", [1.0 + n / 100 for n in range(8)])
    high = complete("high", [2.0 + n * n / 1000 for n in range(8)])
    text = sections.task_section([high, low, complete("few")])
    assert (
        "Holm-corrected over 1 pairs: `low(size=[3])` over `high(size=[3])` by 0.98 ± 0.007 (n = 8, p = "
        in text
    )
    assert "Not tested: a paired t-test wants 8 seeds in common (2 of 3 pairs)." in text
    low["not_citable"] = ["the working tree differed"]
    assert "; not citable)" in sections.task_section([high, low])
    rounded = complete("other", [1.0 + n / 100 + 1e-6 * (1 + n % 2) for n in range(8)])
    assert "Holm-corrected over 1 pairs: none. For 1 other pairs no" in sections.task_section([low, rounded])


def test_other_lengths_have_columns_where_a_record_has_scores_there():
    one, other = complete("one"), complete("other", (3.0,))
    assert "at 512" not in sections.task_section([one, other])
    other["seeds"]["0"]["test_at_length"] = {"512": {"bits": 3.5}}
    lines = sections.task_section([one, other]).splitlines()
    assert "| attention | test bits | at 512 | step ms |" in lines[2]
    assert "| 2.0000 (n=1) | - | " in lines[4] and "| 3.0000 (n=1) | 3.5000 (n=1) | " in lines[5]


def test_how_each_learning_rate_was_come_by_is_said():
    group = [complete(name, (2.0,)) for name in ("one", "two", "three")]
    for tuned, rate in ((group[1], 0.01), (group[2], 0.1)):
        tuned["config"]["optimizer"]["learning_rate_grid"], tuned["learning_rate"] = [0.01, 0.1], rate
    assert sections.rates_text(group[1:]) == "Learning rate of all: tuned over 0.01, 0.1."
    assert sections.rates_text(group) == (
        "Learning rates: 0.003, not tuned (`one(size=[3])`); "
        "tuned over 0.01, 0.1 (`two(size=[3])`, `three(size=[3])`)."
    )


def test_records_that_do_not_compare_are_not_published():
    with pytest.raises(ValueError, match="do not compare"):
        sections.task_section([complete("one"), complete("other", config__train__steps=7)])


def test_the_picture_is_drawn_and_a_variant_has_one_look(tmp_path):
    made = with_speed(complete("full"))
    made["attention"]["name"] = "full"
    killed = complete("killed", outcome=records.UNFINISHED, seeds={})
    killed["attention"]["name"] = "lsh"
    for name, each in (("full", made), ("killed", killed)):
        records.write_record(make(tmp_path / name), each)
    line = {"step": 5, "split": "validation", made["task"]["primary"]: 3.0}
    records.append(make(tmp_path / "full" / "seed-0") / "metrics.jsonl", line)
    files.write_json(
        tmp_path / "performance.json", [cell("full", 1024, 0.1), cell(peers.BASELINE, 1024, 0.2)]
    )
    figures.results(tmp_path, tmp_path / "made" / "picture.png")
    assert (tmp_path / "made" / "picture.png").stat().st_size > 10_000
    styles = [str(figures.style(name)) for name in (*registry.names(), peers.BASELINE)]
    assert len(set(styles)) == len(styles)


def make(folder):
    folder.mkdir(parents=True)
    return folder
