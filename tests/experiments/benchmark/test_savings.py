"""The page of savings, and how its command answers."""

import sys

import pytest

from experiments import provenance
from experiments.benchmark import savings
from experiments.config import settings

HERE = provenance.gather()


def test_savings_are_shares_of_the_first_row():
    def row(here, there, seconds):
        planned = {name: {"memory": {"training_step": {"temporaries": there}}} for name in savings.TARGETS}
        return {
            "memory": {"temporaries": here}, "compiled_for": planned,
            "seconds": {"median": seconds}, "provenance": HERE,
        }  # fmt: skip

    text = savings.page({"first": row(2**20, 2**21, 0.2), "other": row(2**18, 2**20, 0.3)})
    assert "| other | 1 MiB (0.50x) | 1 MiB (0.50x) | 256 KiB (0.25x) | 300 (1.50x) |" in text
    assert "jax " in text


def test_rows_of_savings_are_configs_and_every_row_is_another():
    found = [settings.load(str(savings.CONFIG), [*savings.COMMON, *row]) for row in savings.ROWS.values()]
    assert len({settings.identity(config) for config in found}) == len(savings.ROWS)


def test_savings_answer_what_is_wrong_in_one_line(capsys, monkeypatch):
    for arguments, word in ((["--config.train.stepz=3"], "train.stepz"), (["--rwo"], "--rwo")):
        assert savings.main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("savings: ") and error.count("\n") == 1 and word in error
    with pytest.raises(SystemExit) as stopped:
        savings.main(["--help"])
    assert stopped.value.code == 0 and "--config.task.length=2048" in capsys.readouterr().out
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(SystemExit, match=r"savings: --config\..*: exit code 1$"):
        savings.main([])
