"""Bytes as what can be read of them."""

import numpy as np
import pytest

from experiments import tasks
from experiments.tasks import utf8


def test_any_script_and_any_byte():
    assert utf8.decode(utf8.encode("a 早\n")) == ["a", "␣", "早", "·", "·", "\\n"]
    cut = utf8.encode("早")[:2]
    assert utf8.decode(cut) == ["\\xe6", "\\x97"]
    assert utf8.decode(np.array([0xFF, 0x41, 0x01])) == ["\\xff", "A", "\\x01"]
    assert utf8.decode(np.array([], np.int32)) == []


@pytest.mark.parametrize("name, text, words", [
    ("bytes", "é=1", ["é", "·", "=", "1"]),
    ("text", "no", ["n", "o"]),
    ("listops", "( ( [MAX 2 ) ] )", ["[MAX", "2", "]"]),
    ("recall", "3 14", ["3", "14"]),
])  # fmt: skip
def test_each_task_reads_its_text_and_shows_its_tokens(name, text, words):
    task = tasks.make(name)
    tokens = task.encode(text)
    assert tokens.dtype == np.int32 and (tokens < task.vocab_size).all()
    assert task.decode(tokens) == words


def test_padding_shows_nothing():
    for name in ("text", "listops"):
        assert tasks.make(name).decode(np.array([0, 1], np.int32))[0] == ""


@pytest.mark.parametrize(
    "name, text", [("listops", "[MAX 12 ]"), ("recall", "a"), ("recall", "-1"), ("recall", "²")]
)
def test_what_cannot_be_read_is_refused(name, text):
    with pytest.raises(ValueError, match=f"{name}: .* is not accepted"):
        tasks.make(name).encode(text)
