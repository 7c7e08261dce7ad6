"""Every test that a page names is there, so that what it is said to hold is held."""

import re
from pathlib import Path

from experiments import codes
from tests.mutants import PAGE as MUTANTS

ROOT = Path(__file__).resolve().parent.parent
RELIABILITY = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
FUNCTION = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
TESTS = {
    path.relative_to(ROOT / "tests").as_posix(): set(FUNCTION.findall(path.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "tests").rglob("test_*.py"))
}
# `test_file`, `test_function`, or `test_file`: `test_function`, `another one of it`
NAMED = re.compile(r"`(test_\w+)`(?:: `(test_\w+)`((?:, `test_\w+`)*))?")


def missing(text: str) -> list[str]:
    """What is named in `text` and is neither a file of tests nor a function there."""
    files = {Path(path).stem: functions for path, functions in TESTS.items()}
    every = set().union(*TESTS.values())
    wrong = []
    for name, first, others in NAMED.findall(text):
        inside = [first, *re.findall(r"\w+", others)] if first else []
        if inside:
            wrong += [f"{name}: {each}" for each in inside if each not in files.get(name, ())]
        elif name not in files and name not in every:
            wrong.append(name)
    modules = re.findall(r"python -m ([\w.]+)", text)
    return wrong + [each for each in modules if not (ROOT / f"{each.replace('.', '/')}.py").exists()]


def test_the_tests_of_reliability_are_there():
    assert missing(RELIABILITY) == []


def test_what_is_missing_is_said():
    here = "`test_docs`: `test_what_is_missing_is_said`"
    assert missing(f"{here}; `test_kills`, `test_what_is_missing_is_said`; `python -m tests.kills`") == []
    text = (
        f"`test_docs`: `test_1`, `test_2`; `test_3`; {here.replace('docs', 'kills')}; `python -m tests.four`"
    )
    wrong = ["test_docs: test_1", "test_docs: test_2", "test_3", "test_kills: test_what_is_missing_is_said"]
    assert missing(text) == [*wrong, "tests.four"]


def test_the_tests_that_caught_planted_faults_are_there():
    caught = re.findall(r"\| (\w+\.py)::(\w+) \|", MUTANTS.read_text(encoding="utf-8"))
    assert len(caught) > 50
    assert [pair for pair in caught if pair[1] not in TESTS[f"attention/test_{pair[0]}"]] == []


def test_the_exit_codes_are_those_that_the_pages_name():
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    (listed,) = re.findall(r"Exit codes: (.*?)\. ", readme)
    known = {value for name, value in vars(codes).items() if name.isupper()}
    assert {int(number) for number in re.findall(r"\d+", listed)} == known - {codes.FAILED}
    cells = [line.split(" | ")[2] for line in RELIABILITY.splitlines() if line.startswith("| ")]
    assert {int(number) for cell in cells for number in re.findall(r"\d+", cell)} <= known
