"""Files for a paper: none takes the place of another, whatever tasks and runs are called."""

import collections
import copy

from experiments import files, provenance, records
from experiments.report import export, gathered
from tests.experiments.report.test_page import by_length, put

RESULTS = provenance.ROOT / "results"


def recall():
    (path,) = RESULTS.glob(f"recall-lsh-*/{records.RECORD}")
    return files.read_json(path)


def exported(folder):
    """Names of the files that were written, each of which is there."""
    (folder / "paper").mkdir()
    paths = export.export(gathered.gather([folder]), folder / "paper")
    assert collections.Counter(paths).most_common(1)[0][1] == 1
    assert all(path.is_file() for path in paths)
    return {path.name for path in paths}


def test_two_tables_of_one_task_have_their_own_pictures(tmp_path):
    for length in (16, 24):
        made = copy.deepcopy(recall()) | {"identity": str(length)}
        made["task"]["length"] = made["config"]["task"]["length"] = length
        put(tmp_path, made)
    names = exported(tmp_path)
    pictures = {"recall-accuracy-against-memory.svg", "recall-accuracy-against-memory-2.svg"}
    assert names >= {"recall-16.md", "recall-24.md", *pictures}


def test_two_groups_by_length_have_their_own_pictures(tmp_path):
    for cores in (1, 2):
        for length in (1024, 4096):
            made = by_length("full", length, 2**20 * length, length / 1000)
            made["identity"] = f"{cores}-{length}"
            made["provenance"]["machine"]["usable_cores"] = cores
            put(tmp_path, made)
    assert exported(tmp_path) >= {"forward-seconds-by-length.svg", "forward-seconds-by-length-2.svg"}


def test_long_names_are_cut(tmp_path):
    for number in (1, 2):
        made = copy.deepcopy(recall()) | {"identity": str(number)}
        made["task"]["name"] = made["config"]["task"]["name"] = "早" * 300 + str(number)
        put(tmp_path, made)
    assert {name for name in exported(tmp_path) if name.endswith(".tex")} == {
        "早" * 60 + ".tex", "早" * 60 + "-2.tex",
    }  # fmt: skip
