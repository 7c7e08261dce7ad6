"""How a cell ended, from exit code and record; and what that makes of the sweep."""

import pytest

from experiments import records
from experiments.sweep.ending import Ending, code_of_all, judged


@pytest.mark.parametrize(
    ("code", "outcome", "expected", "of_all"),
    [
        (0, records.FINISHED, "finished", 0),
        (3, records.DIVERGED, "diverged", 0),
        (4, records.OUT_OF_MEMORY, "out of memory", 0),
        (4, records.OUT_OF_MEMORY_COMPILED, "out of memory (compiled)", 0),
        (75, records.INTERRUPTED, "interrupted", 75),
        (130, records.INTERRUPTED, "interrupted", 75),
        (0, None, "failed", 1),  # it left no record
        (1, records.FAILED, "failed", 1),
        (2, None, "failed", 1),
        (5, records.FINISHED, "failed", 1),  # of other code: not continued
        (-9, records.UNFINISHED, "failed", 1),
        (None, records.UNFINISHED, "failed", 1),
    ],
)
def test_what_a_code_and_a_record_mean(tmp_path, code, outcome, expected, of_all):
    record = outcome and {"outcome": outcome, "reason": "why"}
    ending = judged(record, code, None if code is not None else "by the cluster", tmp_path / "none")
    assert ending.outcome == expected and ending.exit_code == code
    assert code_of_all([Ending(records.FINISHED), ending]) == of_all
    assert code != -9 or ending.reason == "killed by SIGKILL"
    assert code is not None or ending.reason == "by the cluster"


def test_a_failure_outweighs_what_can_be_continued():
    assert code_of_all([Ending(records.INTERRUPTED), Ending(records.FAILED)]) == 1
