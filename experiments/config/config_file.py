"""Config files: Python files with a function `get_config`, or `get_sweep`, or both."""

import difflib
import importlib.util
import inspect
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict, FrozenConfigDict
from ml_collections.config_dict import RequiredValueError

from experiments.config.checks import UsageError, one_line
from experiments.fields import Config

CONFIGS = Path("configs")
SWEEP = "get_sweep"


def read_config(path: str) -> Config:
    """What the file's `get_config` gives. `path` may end in `:argument`, which is handed to it.

    Raises UsageError if there is no such file, or it gives no ConfigDict.
    """
    module, arguments = _executed(path)
    if not hasattr(module, "get_config") and hasattr(module, SWEEP):
        raise UsageError(f"--config={path}: the file holds a sweep and no get_config")
    config = _called(path, lambda: module.get_config, arguments)
    if not isinstance(config, ConfigDict) or isinstance(config, FrozenConfigDict):
        raise UsageError(f"--config={path}: get_config() gives a {type(config).__name__}, not a ConfigDict")
    _check_named(path, config)
    return config


def read_sweep(path: str) -> list[dict[str, Any]] | None:
    """What the file's `get_sweep` gives, a dict of overrides for each cell; None if it has none.

    `path` may end in `:argument`, which is handed to it. Raises UsageError if there is no such file, or it
    gives anything else.
    """
    module, arguments = _executed(path)
    if not hasattr(module, SWEEP):
        return None
    cells = _called(path, lambda: module.get_sweep, arguments)
    if not isinstance(cells, list | tuple) or not cells:
        raise UsageError(f"--config={path}: {SWEEP}() must give a list of dicts, and not an empty one")
    for number, cell in enumerate(cells, start=1):
        if not isinstance(cell, dict) or not all(isinstance(field, str) for field in cell):
            raise UsageError(f"--config={path}: {SWEEP}(): cell {number} is no dict of overrides: {cell!r}")
    return list(cells)


def has_sweep(path: str) -> bool:
    """Whether the file has a `get_sweep`. Raises UsageError if there is no such file."""
    return hasattr(_executed(path)[0], SWEEP)


def _check_named(path: str, section: Config, prefix: str = "") -> None:
    for name in section:
        if not isinstance(name, str):
            raise UsageError(f"--config={path}: the field {name!r} is named by no string")
        try:
            value = section[name]
        except RequiredValueError as error:
            raise UsageError(f"--config={path}: the field {prefix}{name} has no value") from error
        if isinstance(value, ConfigDict):
            _check_named(path, value, f"{prefix}{name}.")


def _executed(path: str) -> tuple[types.ModuleType, list[str]]:
    """The file's module, and the arguments for its functions."""
    file, colon, argument = path.partition(":")
    if not Path(file).is_file():
        there = {path.stem: path for folder in (CONFIGS, Path(file).parent) for path in folder.glob("*.py")}
        near = difflib.get_close_matches(Path(file).stem, there, 1)
        hint = f"; did you mean {there[near[0]]}?" if near else f"; there are {', '.join(sorted(there))}"
        raise UsageError(f"--config={path}: there is no file {file!r}{hint}")
    spec = importlib.util.spec_from_file_location("config_file", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"--config={path}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--config={path}: {_said(error)}") from error
    return module, [argument] if colon else []


def _called(path: str, find: Callable[[], Callable[..., Any]], arguments: list[str]) -> Any:
    try:
        function = find()
        takes = _takes(function, arguments)
        result = function(*arguments) if takes else None
    except (Exception, SystemExit) as error:
        raise UsageError(f"--config={path}: {_said(error)}") from error
    if not takes:
        file, colon, argument = path.partition(":")
        wants = f"takes no argument {argument!r}" if colon else f"wants an argument, --config={path}:ARGUMENT"
        raise UsageError(f"--config={path}: {file} {wants}")
    return result


def _takes(function: Callable[..., Any], arguments: list[str]) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


def _said(error: BaseException) -> str:
    """What went wrong in a config file; of its fields in our words, for ml_collections names none of ours."""
    text = one_line(error)
    if unknown := re.search(r'Key "(\w+)" does not exist', text):
        near = re.search(r'Did you mean "(\w+)"', text)
        return f"there is no field {unknown[1]}" + (f"; did you mean {near[1]}?" if near else "")
    cast = (
        r"override field '(\w+)' \(reference\)\. (.*) is of original type .* to type <class '(?:.*\.)?(\w+)'>"
    )
    if mistyped := re.search(cast, text):
        accepted = "a section" if mistyped[3] == "ConfigDict" else f"of type {mistyped[3]}"
        return f"{mistyped[1]}={mistyped[2]} is not accepted: it must be {accepted}"
    return f"{type(error).__name__}: {text}"
