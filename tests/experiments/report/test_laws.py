"""What a card says of the laws."""

from xml.etree import ElementTree

import pytest

from experiments import files, provenance
from experiments.report import laws
from experiments.shape import wrong
from tests.laws import tallies

XML = """<testsuites><testsuite>
<testcase name="test_law_1_output[window(window_size=5)-plain-True]"/>
<testcase name="test_law_1_output[full-plain-True]"><failure message="no"/></testcase>
<testcase name="test_law_10_work[full-False]"><skipped message="not of it"/></testcase>
<testcase name="test_reach[full]"/><testcase name="test_law_7_of_all"/>
</testsuite></testsuites>"""
NONE = {"passed": 0, "failed": 0, "skipped": 0}
KEPT = "Laws kept (section 3 of docs/design.md says what they are)"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """What the tests above would have left, of attention/ as it is."""
    path = tmp_path / "laws.json"
    found = tallies(ElementTree.ElementTree(ElementTree.fromstring(XML)))
    files.write_json(
        path,
        {
            "variants": found,
            "commit": "c0ffee",
            "packages": {},
            "code_sha256": provenance.code_sha256(laws.JUDGED),
        },
    )
    monkeypatch.setattr(laws, "PATH", path)
    return path


def test_checks_are_counted_by_variant_and_law(kept):
    assert files.read_json(kept)["variants"] == {
        "window": {"1": {**NONE, "passed": 1}},
        "full": {"1": {**NONE, "failed": 1}, "10": {**NONE, "skipped": 1}},
    }


def test_what_was_kept_and_what_was_broken(kept):
    assert laws.told("window") == (f"{KEPT}: 1 (1 checks, 0 not asked of it), by the code as it is here.")
    assert laws.told("full") == (
        f"{KEPT}: none (0 checks, 0 not asked of it), by the code as it is here. Laws broken: 1 (1 failed)."
    )


def test_of_other_code(kept):
    files.write_json(kept, {**files.read_json(kept), "code_sha256": "0"})
    assert "by commit c0ffee; the code has changed since" in laws.told("window")


def test_nothing_is_claimed_without_a_run(kept):
    assert "`python -m tests.laws` tells" in laws.told("mine")
    for damaged in ("[]", '{"variants": {"window": {"1": {}}}}'):
        kept.write_text(damaged)
        assert "`python -m tests.laws` tells" in laws.told("window")


def test_what_is_published_is_whole():
    kept = files.read_json(laws.PATH)
    assert wrong(kept, laws.SHAPE) is None
    assert not [tally for own in kept["variants"].values() for tally in own.values() if tally["failed"]]
