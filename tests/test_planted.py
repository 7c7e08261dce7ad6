"""The table of planted faults is in step with the sources, and no law is without one."""

import pytest

from tests.mutants import NOBODY, PAGE, ROOT, changed, page, row, written
from tests.planted import FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_can_be_planted(fault):
    source = (ROOT / "attention" / fault.file).read_text(encoding="utf-8")
    mutant = changed(source, fault)
    assert mutant != source
    compile(mutant, fault.file, "exec")
    for name in fault.tests.partition(": ")[0].split(","):
        assert (ROOT / "tests" / "attention" / f"test_{name}.py").exists()


def test_every_law_has_one():
    assert {fault.law for fault in FAULTS} == set(range(13))
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_the_page_lists_them_all():
    """As the program would write it, each caught."""
    rows = written()
    assert list(rows) == [fault.name for fault in FAULTS]
    assert PAGE.read_text(encoding="utf-8") == page(rows)
    for fault in FAULTS:
        test = rows[fault.name].split(" | ")[2]
        assert test != NOBODY
        assert rows[fault.name] == row(fault, test)
