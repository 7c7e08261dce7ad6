"""The table of planted faults is in step with the sources, and no law is without one."""

import re

import pytest

from tests.mutants import PAGE, ROOT, changed, page, row
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


def test_the_page_lists_them_all_each_caught_by_a_test_that_should():
    """The page is as the program would write it; what it says of who noticed is held against the table."""
    text = PAGE.read_text(encoding="utf-8")
    caught_by = re.findall(r"^\| .* \| (\S+)\.py::(\w+) \| \d* ?\|$", text, re.MULTILINE)
    rows = {}
    for fault, (name, test) in zip(FAULTS, caught_by, strict=True):
        assert name in fault.tests.partition(": ")[0].split(",")
        laws = re.findall(r"^test_law_(\d+)_", test)
        assert not laws or int(laws[0]) == fault.law
        rows[fault.name] = row(fault, f"{name}.py::{test}")
    assert text == page(rows)
