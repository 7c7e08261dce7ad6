"""A quoted number has all that belongs to it, or is not quoted."""

import copy
import json
import re
import subprocess
import sys

import pytest

from experiments import files, provenance
from experiments.cite import __main__ as command
from experiments.cite import quote

RESULTS = provenance.ROOT / "results"


def result(name):
    (path,) = RESULTS.glob(f"{name}-*/record.json")
    return path


def test_a_number_of_eight_seeds(capsys):
    path = result("recall-lsh")
    assert command.main([str(path.parent)]) == 0
    out = capsys.readouterr().out
    assert "lsh(chunk_size=16) attention has a test accuracy of 0.51 ± 0.36 (mean and half the 95%" in out
    for part in ("n = 8 seeds", "chance is 0.007812", "version 1, length 128", "jax 0.10.2", "2 cores"):
        assert part in out
    record = files.read_json(path)
    assert record["provenance"]["git"]["commit"] in out and f"recall-lsh-{record['identity']}" in out


def test_a_number_of_one_seed_says_so(capsys):
    assert command.main([str(result("window128"))]) == 0
    assert "2.642 (one seed, so no interval)" in capsys.readouterr().out


def test_what_is_at_chance_says_so():
    assert "at chance" in quote.sentence(files.read_json(result("recall-window")))


def entry(text):
    """Type, key and fields of a BibTeX entry, its braces counted."""
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    head = re.match(r"@(\w+)\{([^,\s]+),\n", text)
    assert head
    return head[1], head[2], dict(re.findall(r"^  (\w+) = \{(.*)\},$", text, re.MULTILINE))


def test_the_entry_of_bibtex_parses():
    record = files.read_json(result("recall-window"))
    kind, key, fields = entry(quote.bibtex(record))
    assert (kind, key) == ("misc", f"attention-bench:recall-window-{record['identity']}")
    assert fields.keys() == {"title", "author", "year", "version", "note"}
    assert r"window(window\_size=16)" in fields["title"] and fields["year"] == "2026"
    for value in fields.values():  # nothing that TeX would take for its own
        assert not re.search(r"(?<!\\)[_%&#$]", value.replace(r"$\pm$", ""))


def test_what_must_not_be_quoted_says_why(tmp_path, capsys):
    record = copy.deepcopy(files.read_json(result("window128")))
    record["not_citable"] = ["the working tree differed from its commit"]
    record["provenance"]["git"] |= {"dirty": True, "status": [" M attention/window.py"]}
    files.write_json(tmp_path / "record.json", record)
    assert command.main([str(tmp_path)]) == 5
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    assert "not citable: the working tree differed from its commit (M attention/window.py)" in error


def test_what_has_no_commit_is_not_quoted():
    record = files.read_json(result("window128"))
    record["provenance"]["git"] = None
    assert "not known by a commit" in str(quote.refusal(record))


def test_what_has_no_score_is_not_quoted(tmp_path, capsys):
    record = copy.deepcopy(files.read_json(result("window128")))
    record["seeds"] = {"0": {"outcome": "diverged"}}
    record["outcome"] = "diverged"
    files.write_json(tmp_path / "record.json", record)
    assert command.main([str(tmp_path)]) == 5
    assert "has no test score: diverged" in capsys.readouterr().err


def test_seeds_that_failed_are_told():
    record = copy.deepcopy(files.read_json(result("recall-lsh")))
    record["seeds"]["3"] = {"outcome": "diverged"}
    assert "n = 7 seeds" in quote.sentence(record) and "1 of 8 seeds failed" in quote.sentence(record)


@pytest.mark.parametrize("content", [None, "{", "[]", json.dumps({"schema": 1})])
def test_what_is_no_run_is_one_line(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "record.json").write_text(content)
    assert command.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cite: ") and error.count("\n") == 1 and str(tmp_path) in error


def test_a_reader_that_stops_is_no_error():
    """As `| head -1` does."""
    command = [sys.executable, "-m", "experiments.cite", *[str(result("window128"))] * 200]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=provenance.ROOT
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_the_example_in_the_readme_is_what_is_printed():
    text = (provenance.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n> {quote.sentence(files.read_json(result('recall-window')))}\n" in text


def test_what_is_no_attention_is_not_called_so():
    record = files.read_json(result("recall-window"))
    assert ", window(window_size=16) attention has a test" in quote.sentence(record)
    record["attention"] |= {"name": "gru", "text": "gru"}
    assert ", gru has a test" in quote.sentence(record)


def test_a_brace_in_a_name_closes_nothing():
    record = files.read_json(result("recall-window"))
    record["attention"]["text"] = "mine{"
    made = quote.bibtex(record)
    assert made.count("{") == made.count("}") and r"mine{\textbraceleft}" in made
