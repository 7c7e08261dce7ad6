"""Runs the laws over every registered variant, and keeps how many checks each passed.

    python -m tests.laws     # some minutes; writes results/laws.json, which the cards of a report quote

Exit code 1 if a check failed, which is in the file too, or if they did not run to their end: then nothing is
written.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import attention
from experiments import files, provenance
from experiments.report.laws import JUDGED, PATH, Tally

COMMAND = ("-m", "pytest", "-m", "not campaign", "-k", "test_law_", "tests/attention", "-q", "--tb=no")
LAW = re.compile(r"test_law_(\d+)_")
VARIANT = re.compile(rf"(?<!\w)({'|'.join(attention.names())})(?!\w)")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "laws.xml"
        code = subprocess.run([sys.executable, *COMMAND, f"--junitxml={xml}"], cwd=provenance.ROOT).returncode
        found = tallies(ElementTree.parse(xml))
    missing = set(attention.names()) - found.keys()
    if code not in (0, 1) or missing:
        print(f"pytest ended with {code}, without {', '.join(sorted(missing)) or 'nothing'}: nothing is kept")
        return 1
    gathered = provenance.gather()
    origin = {"commit": provenance.commit(gathered), "packages": gathered["packages"]}
    origin |= {"code_sha256": provenance.code_sha256(JUDGED)}
    files.write_json(PATH, {**origin, "variants": found})
    print(f"wrote {PATH.relative_to(provenance.ROOT)}")
    return code


def tallies(tree: ElementTree.ElementTree) -> dict[str, dict[str, Tally]]:
    """By variant and law, how many checks passed, failed, and were not asked of it (skipped)."""
    found: dict[str, dict[str, Tally]] = {}
    for case in tree.iter("testcase"):
        name = case.get("name", "")
        law, variant = LAW.match(name), VARIANT.search(name.partition("[")[2])
        if law is None or variant is None:
            continue
        tally = found.setdefault(variant[1], {}).setdefault(law[1], {"passed": 0, "failed": 0, "skipped": 0})
        kinds = {child.tag for child in case}
        broken = kinds & {"failure", "error"}
        tally["failed" if broken else "skipped" if "skipped" in kinds else "passed"] += 1
    return found


if __name__ == "__main__":
    sys.exit(main())
