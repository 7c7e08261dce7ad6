"""The table of planted faults is in step with the sources, and no law is without one."""

import pytest

from tests.mutants import PAGE, ROOT, changed, page
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
    written = PAGE.read_text(encoding="utf-8")
    assert all(f"| {fault.name} | `{fault.file}` |" in written for fault in FAULTS)
    assert "nobody" not in written
    assert f"{len(FAULTS)} faults, {len(FAULTS)} caught" in page([(fault, "a test") for fault in FAULTS])
