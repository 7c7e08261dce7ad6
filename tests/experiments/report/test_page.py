"""The page of a report: all that was found is on it, none of it as markup, and it needs nothing beside it."""

import copy
import csv
import html.parser
import io
import re
import shutil

import pytest

from experiments import files, provenance, records
from experiments.report import __main__ as command
from experiments.report import advice, export, gathered, latex, page

RESULTS = provenance.ROOT / "results"
GIB = 2**30
HOSTILE = "<script>alert(1)</script>&\"'"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, checked to be closed in order; and all text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


def window128():
    (path,) = RESULTS.glob("window128-*/record.json")
    return files.read_json(path)


def by_length(attention, length, total, seconds):
    """A record as configs/scaling.py leaves it."""
    made = copy.deepcopy(window128())
    made |= {
        "name": f"scaling-{attention}-{length}",
        "identity": f"{length:06x}",
    }
    made["seeds"], made["config"]["seeds"] = {}, []
    made["attention"] |= {"name": attention, "text": attention}
    made["config"]["attention"] = {"name": attention}
    made["config"]["name"] = made["name"]
    made["config"]["task"]["length"] = made["task"]["length"] = length
    for program in ("training_step", "forward"):
        made["memory"][program]["total"] = made["memory"][program]["temporaries"] = total
        made["speed"][program] |= {"median": seconds, "low": seconds, "high": seconds}
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Those in results/, some by length, one that failed, one with hostile names, one that is none."""
    folder = tmp_path_factory.mktemp("runs")
    for path in RESULTS.glob(f"*/{records.RECORD}"):
        shutil.copytree(path.parent, folder / path.parent.name)
    sizes = {"full": (4 * GIB, 9.0), "window": (1 * GIB, 1.5), "dense": (30 * GIB, 60.0)}
    for attention, (total, seconds) in sizes.items():
        for length, share in ((4096, 4), (16384, 1)):
            made = by_length(attention, length, total // share, seconds / share)
            put(folder, made)
    failed = window128() | {
        "name": "lost",
        "identity": "0",
        "outcome": "out of memory (compiled)",
        "seeds": {},
    }
    put(folder, failed | {"reason": "the compiler plans 99 bytes"})
    strange = window128() | {"name": "strange", "identity": "1", "outcome": "failed", "reason": HOSTILE}
    strange["attention"] |= {"text": HOSTILE, "name": "of-mine"}
    strange["differences"] = {"name": HOSTILE}
    put(folder, strange)
    (folder / "broken").mkdir()
    (folder / "broken" / records.RECORD).write_text("{")
    return folder


def put(folder, record):
    path = folder / f"{record['name']}-{record['identity']}"
    path.mkdir()
    files.write_json(path / records.RECORD, record)


@pytest.fixture(scope="module")
def text(runs):
    return page.html(gathered.gather([runs]), "Ours")


def test_it_is_whole_and_needs_nothing_beside_it(text):
    read = Reader(text)
    for tag, attributes in read.elements:
        assert tag not in ("link", "iframe", "img", "object"), tag
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,")), attributes
    assert sum(tag == "script" for tag, _ in read.elements) == 1
    assert "@import" not in text and not re.search(r"url\((?!#)", text)


def test_every_link_leads_somewhere_and_no_name_is_given_twice(text):
    elements = Reader(text).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = {
        name
        for tag, a in elements
        for value in a.values()
        for name in re.findall(r"url\(#([^)]*)\)", value or "")
    }
    used |= {a["xlink:href"][1:] for _, a in elements if a.get("xlink:href", "").startswith("#")}
    assert used and used <= set(ids)
    links = {attributes["href"][1:] for tag, attributes in elements if tag == "a"}
    assert links <= set(ids), links - set(ids)


def test_what_comes_from_records_is_text(text):
    assert "<script>alert" not in text
    assert HOSTILE in "".join(Reader(text).text)


def test_every_picture_is_told_in_words(text):
    pictures = [attributes for tag, attributes in Reader(text).elements if tag == "svg"]
    assert len(pictures) > 8
    assert all(each["role"] == "img" and len(each["aria-label"]) > 30 for each in pictures)
    assert text.count("In words") == len(pictures)


def test_nothing_is_dropped(text):
    said = "".join(Reader(text).text)
    for expected in (
        "lost-0: out of memory (compiled): the compiler plans 99 bytes", "strange-1: failed",
        "broken/record.json is not JSON", "at chance", "chance 0.007812", "36.37%", "commit a560569864a1",
        "This variant is not known where the report was made", "0.51 ± 0.36",
    ):  # fmt: skip
        assert expected in said, expected


def test_the_first_screen_says_what_to_take_under_8_gib_at_16k(text):
    said = " ".join("".join(Reader(text).text).split())
    start = said.index("At 16,384 tokens in 8 GiB")
    first = said[start : start + 2000]
    assert "window and full can be trained; dense (30 GiB) cannot." in first
    assert "Fastest is window: 6 times as fast as full." in first
    assert "window(window_size=128)1 GiB1.5 s (1.5-1.5)1" in first and "4 GiB9 s (9-9)6" in first
    assert "Quality was measured at 128 and 1,024 tokens, not at 16,384." in first
    assert "463,104 parameters, 1 sequence a step" in first or "2 sequences a step" in first
    shown = [a for tag, a in Reader(text).elements if "advice" in a.get("class", "") and "hidden" not in a]
    assert [(a["data-length"], a["data-budget"]) for a in shown] == [("16384", "8")]


def test_verdicts_say_what_was_tested(text):
    said = " ".join("".join(Reader(text).text).split())
    assert "On recall (accuracy, higher is better; length 128, n = 8): dense 0.99889 ± 0.00092" in said
    assert "On bytes (bits per byte, lower is better; length 1,024, one seed): window 2.642, dense" in said
    assert "was shown to be better than pooled(window_size=16) and window(window_size=16) (paired" in said
    assert "full (not tested: equal in every seed)" in said


def test_a_thousand_records(tmp_path):
    """Their pairs are not tested, which would be half a million tests."""
    found = []
    for number in range(1000):
        record = window128()
        record["identity"] = f"{number:010x}"
        record["seeds"]["0"]["test"]["bits_per_byte"] += number / 1000
        found.append((tmp_path / str(number), record))
    made = page.html(gathered.Found(found, [], []), "Many")
    assert made.count("<tr>") >= 1000 and "1000 runs are too many" in made


def test_it_is_written_by_one_command(runs, tmp_path, capsys):
    out, folder = tmp_path / "page.html", tmp_path / "paper"
    assert command.main([str(runs), f"--out={out}", f"--export={folder}"]) == 0
    said, told = capsys.readouterr()
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "not read: " in told and "broken" in told
    assert {path.name for path in folder.iterdir()} >= {
        "runs.csv",
        "seeds.csv",
        "recall-128.md",
        "recall-128.tex",
    }
    assert all((tmp_path / line).exists() for line in said.splitlines())


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_where_nothing_is_one_line_says_so(tmp_path, capsys, name):
    (tmp_path / "empty").mkdir()
    assert command.main([str(tmp_path / name), f"--out={tmp_path}/page.html"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("report: ") and error.count("\n") == 1 and name in error
    assert not (tmp_path / "page.html").exists()


def test_separated_values_hold_every_number_in_full(runs, tmp_path):
    found = gathered.gather([runs])
    export.export(found, tmp_path)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert len(lines) == len(found.runs)
    (own,) = (line for line in lines if line["run"] == "window128")
    assert float(own["mean"]) == window128()["seeds"]["0"]["test"]["bits_per_byte"]
    seeds = list(csv.DictReader(io.StringIO((tmp_path / "seeds.csv").read_text())))
    assert sum(line["run"] == "recall-lsh" and line["metric"] == "accuracy" for line in seeds) == 8


def test_latex_is_bold_only_where_it_was_tested(runs):
    found = [record for record in gathered.gather([runs]).records if record["task"]["name"] == "recall"]
    text = latex.table(found)
    assert text.startswith(r"\begin{tabular}{lrrrrrrr}") and text.count(r"\\") == len(found) + 1
    assert text.count(r"\textbf") in (0, 2)
    bytes_ = [record for record in gathered.gather([RESULTS]).records if record["task"]["name"] == "bytes"]
    assert r"\textbf" not in latex.table(bytes_)
    assert not re.search(r"(?<!\\)[_%#]", text)


def test_budgets_are_judged_by_what_needs_more():
    record = by_length("full", 1024, 3 * GIB, 1.0)
    record["memory"]["forward"]["total"] = 5 * GIB
    found = {each.budget: each.take for each in advice.advices([record], [])}
    assert "nothing that was measured can be trained: `full` (5 GiB)" in found[4][0]
    assert "memory decides nothing" in found[8][0] and found[8][-1] == "Quality was not measured."


def test_one_file_that_is_none_does_not_take_the_others_with_it(tmp_path, capsys):
    put(tmp_path, window128())
    half = window128() | {"name": "half", "reason": "\ud800"}
    put(tmp_path, half)
    wrong = window128() | {"name": "wrong"}
    del wrong["provenance"]["packages"]["jax"]
    put(tmp_path, wrong)
    assert command.main([str(tmp_path), f"--out={tmp_path}/page.html"]) == 0
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("not read: ") and told.endswith("there is no provenance.packages.jax")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"half-{half['identity']}" in text and "packages.jax" in text


def test_a_dollar_in_a_name_is_a_dollar(tmp_path):
    named = window128()
    named["attention"]["text"] = "$x^$"
    named["task"]["primary"] = "$y_$"
    named["seeds"]["0"]["test"]["$y_$"] = 1.0
    put(tmp_path, named)
    for length in (1024, 4096):
        made = by_length("full", length, GIB * length, 1.0)
        made["attention"]["text"] = "$z^$"
        put(tmp_path, made)
    text = page.html(gathered.gather([tmp_path]), "Ours")
    assert "$x^$</text>" in text and ">$z^$" in text and r">$\mathdefault" not in text


def test_numbers_of_any_size_are_drawn(tmp_path):
    for number in (1, 2, 3):
        put(tmp_path, by_length("full", 10 ** (30 * number), 10 ** (33 * number), 10.0 ** (33 * number)))
    great = window128()
    great["memory"]["training_step"]["total"] = 10**99
    great["seeds"]["0"]["test"][great["task"]["primary"]] = -(10**99)
    put(tmp_path, great)
    found = gathered.gather([tmp_path])
    assert not found.complaints and "<svg" in page.html(found, "Ours")


def test_a_run_counts_once_however_often_it_is_named(tmp_path):
    put(tmp_path, window128())
    (tmp_path / "link").symlink_to(tmp_path)
    found = gathered.gather([tmp_path, tmp_path / "link", tmp_path / "."])
    assert len(found.runs) == 1


def test_where_only_a_broken_record_is_it_is_named(tmp_path, capsys):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / records.RECORD).write_text("{")
    assert command.main([str(tmp_path), f"--out={tmp_path}/page.html"]) == 2
    assert "broken/record.json is not JSON" in capsys.readouterr().err


def test_damaged_metrics_are_named(tmp_path):
    made = window128()
    put(tmp_path, made)
    seed = tmp_path / f"{made['name']}-{made['identity']}" / "seed-0"
    seed.mkdir()
    (seed / "metrics.jsonl").write_text("{}\n")
    (told,) = gathered.gather([tmp_path]).complaints
    assert "seed-0/metrics.jsonl:1 has no step" in told


def test_a_title_that_is_no_text_is_named(runs, capsys):
    with pytest.raises(SystemExit):
        command.main([str(runs), "--title=a\udcff"])
    assert "--title 'a\\udcff' is no text" in capsys.readouterr().err
