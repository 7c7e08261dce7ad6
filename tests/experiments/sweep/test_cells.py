"""All cells are known, checked and told apart before the first one starts."""

import re
from pathlib import Path

import pytest

import attention
import launch
from configs import base
from experiments.config import settings
from experiments.sweep import cells

CONFIGS = Path(base.__file__).parent
MINE = f"""
from configs import base

def get_config(attention="full"):
    config = base.get_config()
    config.name = "own"
    config.attention.name = attention
    return config

def get_sweep(which="two"):
    return {{
        "two": [
            {{"seeds": (0, 1)}}, {{"config": "other.py:lsh", "train.steps": 30, "model.max_length": None}}
        ],
        "one": [{{}}],
        "none": [],
        "list": [["seeds"]],
        "number": [{{3: 4}}],
        "twice": [{{"name": "a"}}, {{"name": "b", "seeds": ()}}],
        "wrong": [{{}}, {{"train.steps": 30, "attention.window_size": 3}}],
        "file": [{{"config": 3}}],
        "nowhere": [{{"config": "nowhere.py"}}],
        "sweep": [{{"config": {str(CONFIGS / "compare.py")!r}}}],
    }}[which]
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "other.py").write_text(MINE.partition("def get_sweep")[0].replace("own", "other"))
    return f"{tmp_path}/mine.py"


def test_a_cell_is_its_file_with_its_fields_and_then_the_command_lines(mine):
    name, found = cells.load([f"{mine}:two"], ["--config.seeds=3", "--config.name=given"])
    own, other = found
    assert name == "mine-two" and cells.load([mine], [])[0] == "mine"
    assert own.config.attention.name == "full" and other.config.attention.name == "lsh"
    assert own.config.seeds == other.config.seeds == (3,) and other.config.train.steps == 30
    assert own.path == mine and own.beside_sweep and not other.beside_sweep
    assert other.path == str(Path(mine).with_name("other.py")) + ":lsh"
    alone = settings.load(other.path, ["--config.train.steps=30"])
    assert settings.identity(alone) == settings.identity(other.config)
    assert cells.load([f"{mine}:one"], [])[0] is not None


def test_the_sweep_of_the_readme_is_one(tmp_path):
    text = (CONFIGS.parent / "README.md").read_text(encoding="utf-8")
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def get_sweep" in b)
    (tmp_path / "mine.py").write_text(block)
    (tmp_path / "recall.py").write_text((CONFIGS / "recall.py").read_text())
    _, found = cells.load([f"{tmp_path}/mine.py"], [])
    assert [cell.config.attention.window_size for cell in found] == [8, 16, 32]


def test_several_files_are_one_sweep_and_one_alone_is_none(mine):
    window = str(CONFIGS / "window128.py")
    assert cells.load([window], [])[0] is None
    name, found = cells.load([window, f"{mine}:two"], [])
    assert name == "window128+mine-two" and len(found) == 3
    name, (alone,) = cells.load([f"{mine}:lsh"], [], whole=False)
    assert name is None and alone.config.attention.name == "lsh" and alone.beside_sweep


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("none", ["get_sweep() must give a list of dicts, and not an empty one"]),
        ("list", ["cell 1 is no dict of overrides: ['seeds']"]),
        ("number", ["cell 1 is no dict"]),
        ("twice", ["two cells ask for the same, a-", " and b-"]),
        ("wrong", ["cell 2 of ", "mine.py:wrong, train.steps=30, attention.window_size=3: ", "no field"]),
        ("file", ["cell 1 of ", "'config' must be the name of a config file"]),
        ("nowhere", ["cell 1 of ", "config='nowhere.py'", "there is no file"]),
        ("sweep", ["cell 1 of ", "compare.py: the file holds a sweep and no get_config"]),
        ("abacus", ["KeyError: 'abacus'"]),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_cell(mine, tmp_path, capsys, which, words):
    assert launch.main([f"--config={mine}:{which}", f"--workdir={tmp_path / 'runs'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("launch.py: ") and error.count("\n") == 1
    assert [word for word in words if word not in error] == [], error
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--slurm=time=3"], "--slurm is of --executor=slurm"),
        (["--executor=local", "--slurm=time=3"], "--slurm is of --executor=slurm"),
        (["--executor=slurm", "--slurm=time"], "'time' is not understood"),
        (["--executor=abacus"], "abacus"),
        (["--target=cpu"], "--target and --longest are of --mode=plan"),
    ],
)
def test_wrong_flags_are_one_line(mine, tmp_path, capsys, flags, words):
    assert launch.main([f"--config={mine}:one", f"--workdir={tmp_path / 'runs'}", *flags]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_the_comparison_is_five_variants_on_two_tasks():
    name, found = cells.load([f"{CONFIGS}/compare.py"], [])
    assert name == "compare" and len(found) == 10
    assert [cell.config.task.name for cell in found] == ["bytes"] * 5 + ["recall"] * 5
    assert [cell.config.seeds for cell in found] == [(0,)] * 5 + [tuple(range(8))] * 5
    files = ("full", "dense", "window128", "pooled", "lsh")
    alone = [settings.load(f"{CONFIGS}/{name}.py", []) for name in files]
    assert [cell.config.to_dict() for cell in found[:5]] == [config.to_dict() for config in alone]
    name, found = cells.load([f"{CONFIGS}/compare.py:window,lsh"], [])
    assert [cell.config.attention.name for cell in found] == ["window", "lsh"] * 2


def test_scaling_measures_and_trains_nothing():
    _, found = cells.load([f"{CONFIGS}/scaling.py"], [])
    lengths, tasks = {}, {}
    for cell in found:
        assert cell.config.seeds == () and cell.config.eval.timed_steps and cell.beside_sweep
        task, variant = cell.config.task.name, cell.config.attention.name
        lengths.setdefault((task, variant), []).append(cell.config.task.length)
        tasks.setdefault(task, []).append(variant)
    doubled = [1024 * 2**n for n in range(6)]
    short = {"dense": 4, "synthesizer": 4}
    assert lengths == {(task, name): doubled[: short.get(name, 6)] for task, name in lengths}
    every = attention.capabilities()
    assert {name for name in every if every[name].causal} <= set(tasks["bytes"])
    assert {name for name in every if not every[name].causal} | {"full"} == set(tasks["text"])
