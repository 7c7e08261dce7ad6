"""Plants the faults of tests/planted.py one by one in a copy of the repository, and says which test noticed.

    python -m tests.mutants              # about 20 minutes; writes docs/mutants.md; exit 1 if one survives
    python -m tests.mutants "fault" ...  # these alone; the other lines of the page stay as they are

To be run where the suite is green: a test that fails anyway notices nothing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.planted import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mutants.md"
SECONDS = 600
NOBODY = "**nobody**"
PASSED, FAILED = 0, 1  # pytest's exit codes; any other is a mistake in the table

INTRODUCTION = """# Planted faults, and what noticed

Written by `python -m tests.mutants` from [tests/planted.py](../tests/planted.py): one textual change each
in a copy of `attention/`. Only the tests named there are run, and they stop at their first failure: more
would notice. The last column is the law; without one it is a test of that part's own.
"""


def main(names: list[str]) -> int:
    chosen = [fault for fault in FAULTS if not names or fault.name in names]
    if unknown := set(names) - {fault.name for fault in chosen}:
        raise SystemExit(f"no such fault: {', '.join(sorted(unknown))}")
    rows = written() if names else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        skipped = shutil.ignore_patterns(".git", "runs", "results", "__pycache__", "*.egg-info", ".venv")
        shutil.copytree(ROOT, copy, ignore=skipped)
        rows |= {fault.name: row(fault, planted(copy, fault)) for fault in chosen}
    PAGE.write_text(page(rows), encoding="utf-8")
    survivors = [fault.name for fault in FAULTS if NOBODY in rows.get(fault.name, NOBODY)]
    print(f"survived, or never run: {'; '.join(survivors)}" if survivors else f"all {len(rows)} caught")
    return 1 if survivors else 0


def planted(copy: Path, fault: Fault) -> str:
    """The test that noticed the fault, "" if none did."""
    path = copy / "attention" / fault.file
    original = path.read_text(encoding="utf-8")
    path.write_text(changed(original, fault), encoding="utf-8")
    try:
        code, failed = run(copy, fault.tests)
    finally:
        path.write_text(original, encoding="utf-8")
    if code not in (PASSED, FAILED):
        raise RuntimeError(f"{fault.name}: pytest ended with {code}")
    print(f"{fault.name}: {failed[0] if failed else 'SURVIVED'}", flush=True)
    return failed[0] if failed else ""


def changed(text: str, fault: Fault) -> str:
    """The file with the fault in it; ValueError unless the old text stands there exactly once."""
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.file} holds {fault.old!r} {text.count(fault.old)} times")
    return text.replace(fault.old, fault.new)


def run(copy: Path, tests: str) -> tuple[int, list[str]]:
    """Exit code and the tests that failed, the first only as pytest stops there."""
    files, _, expression = tests.partition(": ")
    paths = [f"tests/attention/test_{name}.py" for name in files.split(",")]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "--tb=no", *paths, "-k", expression]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=SECONDS)
    return done.returncode, re.findall(r"^FAILED tests/attention/test_(\S+)", done.stdout, re.MULTILINE)


def row(fault: Fault, caught_by: str) -> str:
    """Its line in the table."""
    test = caught_by.partition("[")[0] or NOBODY
    return f"| {fault.name} | `{fault.file}` | {test} | {fault.law or ''} |"


def written() -> dict[str, str]:
    """The lines of the page as it is, by fault."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    named = {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}
    return {fault.name: named[fault.name] for fault in FAULTS if fault.name in named}


def page(rows: dict[str, str]) -> str:
    """docs/mutants.md, in the table's order."""
    known = [rows[fault.name] for fault in FAULTS if fault.name in rows]
    caught = sum(NOBODY not in line for line in known)
    count = f"{len(known)} faults, {caught} caught."
    table = ["| fault | file | caught by | law |", "| --- | --- | --- | --- |"]
    return "\n".join([INTRODUCTION, count, "", *table, *known, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
