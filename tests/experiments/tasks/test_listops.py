"""ListOps: its law, its values, its cache, and the Arena's files."""

import collections
import random

import numpy as np
import pytest
from scipy import stats

from experiments import provenance, tasks
from experiments.config import settings
from experiments.tasks import cache, listops

SHORT = {"length": 40, "min_length": 10, "num_train": 60, "num_validation": 20, "num_test": 20}
NAMES = {number: token for token, number in listops.VOCABULARY.items()}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    listops.generated.cache_clear()
    yield tmp_path / "cache"
    listops.generated.cache_clear()


def words(item):
    return [NAMES[token] for token in item["tokens"][item["valid"]]]


def value_of(tokens):
    """Recursive descent, written without a look at the generator."""
    token = tokens.pop(0)
    if token.isdigit():
        return int(token)
    inside = []
    while tokens[0] != "]":
        inside.append(value_of(tokens))
    tokens.pop(0)
    by_name = {"[MIN": min, "[MAX": max, "[MED": lambda x: int(np.median(x)), "[SM": lambda x: sum(x) % 10}
    return by_name[token](inside)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_every_expression_has_its_value_and_a_wanted_length(split):
    source = tasks.make("listops", **SHORT).source(split, 0)
    for index in range(len(source)):
        item = source[index]
        assert 10 < item["valid"].sum() < 40 and item["tokens"].shape == (40,)
        tokens = words(item)
        assert value_of(tokens) == item["targets"] and not tokens
        assert (item["tokens"][~item["valid"]] == 0).all()


def test_no_expression_is_there_twice():
    task = tasks.make("listops", **SHORT)
    sources = [task.source(split, 0) for split in ("train", "validation", "test")]
    seen = {tuple(source[i]["tokens"]) for source in sources for i in range(len(source))}
    assert len(seen) == 100


def test_operators_by_hand():
    assert [listops.evaluate(operator, [9, 2, 4, 7]) for operator in range(4)] == [2, 9, 5, 2]
    assert listops.evaluate(2, [9, 2, 4]) == 4


def test_giving_up_early_is_the_same_law():
    """Expressions of up to 12 tokens, drawn with the limit or drawn in full and then chosen."""

    def drawn(most):
        draw, kept = random.Random(3), collections.Counter()
        while kept.total() < 8000:
            tokens: list[int] = []
            try:
                listops._expression(draw.random, tokens, most, 1, 4, 5)
            except listops.TooLongError:
                continue
            if 3 < len(tokens) <= 12:
                kept[len(tokens), tokens[0]] += 1
        return kept

    limited, full = drawn(12), drawn(10**9)
    kinds = sorted(limited.keys() | full.keys())
    counts = [[each[kind] for kind in kinds] for each in (limited, full)]
    assert len(kinds) == 4 * 9 and min(map(min, counts)) > 5
    assert stats.chi2_contingency(counts).pvalue > 1e-3


def test_kept_once_and_made_anew_if_damaged(own_cache, monkeypatch):
    task = tasks.make("listops", **SHORT)
    first = task.content_hash()
    (file,) = own_cache.iterdir()
    listops.generated.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(listops, "_generate", None)
        assert task.content_hash() == first
    whole = file.read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in range(60, len(whole), 97)]
    for damaged in (whole[:-40], b"", *flipped):
        file.write_bytes(damaged)
        listops.generated.cache_clear()
        assert task.content_hash() == first
    assert tasks.make("listops", **SHORT | {"length": 41}).content_hash() != first


def test_where_nothing_can_be_kept_it_still_works(own_cache, monkeypatch):
    own_cache.parent.joinpath("file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(own_cache.parent / "file"))
    assert len(tasks.make("listops", **SHORT).source("test", 0)) == 20


def test_another_length_scales_both_bounds():
    source = tasks.make("listops", **SHORT).source("test", 0, 80)
    lengths = [source[i]["valid"].sum() for i in range(len(source))]
    assert min(lengths) > 20 and max(lengths) < 80 and max(lengths) > 40


def test_baselines_by_hand(tmp_path):
    folder = files(
        tmp_path,
        train=[("[MIN 1 2 ]", 1)] * 3 + [("[MAX 1 4 ]", 4)] * 2,
        test=[("[MAX 3 4 ]", 4), ("[SM 0 1 ]", 1), ("3", 3)],
    )
    found = tasks.make("listops", length=8, min_length=0, data_dir=str(folder)).baselines()
    assert found == {"majority": pytest.approx(1 / 3), "root operator": pytest.approx(2 / 3)}


@pytest.mark.campaign
def test_baselines_that_the_docstring_names(as_users_run):
    short = settings.task(settings.load(str(provenance.ROOT / "configs" / "listops.py"), []))
    assert short.baselines() == {"majority": 0.159, "root operator": 0.3455}
    assert tasks.make("listops").baselines() == {"majority": 0.16, "root operator": 0.3535}


def files(folder, **parts):
    parts = {"train": [("[MIN 1 2 ]", 1)], "validation": [("7", 7)], "test": [("8", 8)]} | parts
    for split, lines in parts.items():
        text = "Source\tTarget\n" + "".join(f"{source}\t{target}\n" for source, target in lines)
        (folder / listops.FILES[split]).write_text(text)
    listops.read.cache_clear()
    return folder


def test_the_arenas_files_are_read(tmp_path):
    written = "( ( ( ( [MED 4 ) ( ( [SM 9 ) 8 ) ] ) 2 ) ]"
    folder = files(tmp_path, train=[(written, 4), ("[MAX 2 9 X", 9)])
    task = tasks.make("listops", length=8, min_length=0, data_dir=str(folder))
    source = task.source("train", 0)
    assert len(source) == 2 and task.splits == {"train": 2, "validation": 1, "test": 1}
    assert words(source[0]) == ["[MED", "4", "[SM", "9", "8", "]", "2", "]"] and source[0]["targets"] == 4
    assert words(source[1]) == ["[MAX", "2", "9", "]"]
    cut = tasks.make("listops", length=5, min_length=0, data_dir=str(folder)).source("train", 0)[0]
    assert cut["valid"].all() and words(cut) == ["[MED", "4", "[SM", "9", "8"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("basic_val.tsv", None, "must hold basic_train.tsv, basic_val.tsv, basic_test.tsv"),
        ("basic_val.tsv", "a,b\n", "does not begin with 'Source<TAB>Target'"),
        (
            "basic_val.tsv",
            "Source\tTarget\n[MIN 1 2 ]\t1\n[FOO 1 ]\t1\n",
            r"basic_val.tsv:3: unknown token '\[FOO'",
        ),
        ("basic_val.tsv", "Source\tTarget\n[MIN 1 2 ]\t12\n", "basic_val.tsv:2: target '12'"),
        ("basic_val.tsv", "Source\tTarget\n", "holds no expression"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, name, text, words):
    folder = files(tmp_path)
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        tasks.make("listops", data_dir=str(folder)).source("validation", 0)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="length must be at least min_length"):
        tasks.make("listops", length=100, min_length=99)
    with pytest.raises(ValueError, match="min_length=500 is not accepted; min_length must be below 12"):
        tasks.make("listops", max_depth=2)
    few = tasks.make("listops", length=5, min_length=0, max_depth=2, max_args=2, num_train=300)
    with pytest.raises(
        ValueError, match="different expressions between min_length=0 and length=5 were found"
    ):
        few.source("train", 0)
