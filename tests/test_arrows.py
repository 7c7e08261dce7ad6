"""Imports run one way: launch -> experiments -> attention. Read from the sources, nothing is run."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Who may import what of ours; attention/ is held to what else it may import as well.
OURS = {"launch", "experiments", "attention", "configs", "tests"}
ALLOWED = {
    "launch.py": {"experiments", "attention", "configs"},
    "configs": {"configs"},
    "experiments": {"experiments", "attention"},
    "attention": {"attention"},
}
# Of experiments/, from the ground up. Those of one line do not know each other.
ROOMS = (
    ("tasks",),
    ("model",),
    ("config",),
    ("training",),
    ("report",),
    ("diagnose", "generate"),
    ("running",),
    ("benchmark", "cite", "plan", "reproduce", "sweep"),
)
LIBRARY_OF_ATTENTION = {"jax", "numpy", "jaxtyping"}


def sources(part: str) -> list[Path]:
    path = ROOT / part
    return [path] if path.suffix else sorted(path.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top-level modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(str(node.module).split(".")[0])
    return found


@pytest.mark.parametrize("part", ALLOWED)
def test_arrows_run_one_way(part):
    files = [path for path in sources(part) if path.exists()]
    wrong = {str(path): extra for path in files if (extra := imported(path) & OURS - ALLOWED[part])}
    assert not wrong


def test_rooms_stand_on_one_another_in_order():
    """A room of experiments/ imports what stands on its floor, itself and the rooms before it."""
    folders = {path.name for path in (ROOT / "experiments").iterdir() if (path / "__init__.py").exists()}
    assert folders == {room for group in ROOMS for room in group}
    for level, group in enumerate(ROOMS):
        allowed = {room for below in ROOMS[:level] for room in below}
        for room in group:
            files = sources(f"experiments/{room}")
            wrong = {str(x): extra for x in files if (extra := rooms(x) & folders - allowed - {room})}
            assert not wrong
    wrong = {
        path.name: extra for path in (ROOT / "experiments").glob("*.py") if (extra := rooms(path) & folders)
    }
    assert not wrong


def rooms(path: Path) -> set[str]:
    """Of experiments/, that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "experiments":
            parts = str(node.module).split(".")[1:2]
            found |= set(parts) or {alias.name for alias in node.names}
    return found


def test_attention_stands_on_arrays_alone():
    accepted = LIBRARY_OF_ATTENTION | ALLOWED["attention"] | sys.stdlib_module_names
    wrong = {str(path): extra for path in sources("attention") if (extra := imported(path) - accepted)}
    assert not wrong


@pytest.mark.parametrize("part", ["attention", "experiments", "configs"])
def test_files_stay_short(part):
    """One job a file, below 400 lines."""
    long = {str(x): n for x in sources(part) if (n := len(x.read_text(encoding="utf-8").splitlines())) >= 400}
    assert not long


def test_there_is_something_to_read():
    assert len(sources("attention")) > 10
