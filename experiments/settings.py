"""From a config file and the command line to one resolved and checked config."""

import hashlib
import importlib.util
import inspect
import json
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attention
from absl import flags
from ml_collections import ConfigDict, config_dict, config_flags

from experiments import tasks
from experiments.checks import UsageError, check_fields, check_known, check_together
from experiments.tasks.task import Task

# What a name stands for: its fields with their defaults, and the object that they build.
NAMED: dict[str, tuple[Callable[[str], dict[str, Any]], Callable[..., Any]]] = {
    "attention": (attention.hyperparameters, attention.make),
    "task": (tasks.hyperparameters, tasks.make),
}
# What has no bearing on the numbers.
INCIDENTAL = ("name", "seeds", "train.checkpoint_every", "train.log_every", "eval.timed_steps")


def load(path: str, overrides: list[str]) -> ConfigDict:
    """The config of a file, with the command line's changes, every field resolved, checked and locked.

    `path` may end in `:argument`, which is handed to the file's `get_config`. An override is
    `--config.field=value`. A new `attention.name` or `task.name` first replaces the fields of the old one by
    the new one's defaults. Raises UsageError, one line, for anything wrong.
    """
    config = _read(path)
    values = dict(_split(override) for override in overrides)
    for section in NAMED:
        name = values.pop(f"{section}.name", None)
        if name is not None and name != config[section].get("name"):
            config[section] = ConfigDict({"name": name})
        config[section] = _resolve(section, config[section])
    config = _override(config, values)
    check_fields({f: v for f, v in _flat(config).items() if f.split(".")[0] not in NAMED})
    check_together(config, variant(config), task(config))
    return config.lock()


def variant(config: ConfigDict) -> attention.Attention:
    """The variant that the config names."""
    return _make("attention", config)


def task(config: ConfigDict) -> Task:
    """The task that the config names."""
    return _make("task", config)


def differences(config: ConfigDict, defaults: ConfigDict) -> dict[str, Any]:
    """Fields, as "section.field", that differ from the defaults of base, of the variant and of the task."""
    plain = ConfigDict(defaults.to_dict())
    for section in NAMED:
        plain[section] = _resolve(section, ConfigDict({"name": config[section].name}))
        plain[section].unlock()
        plain[section].name = defaults[section].name
    reference = _flat(plain)
    return {field: value for field, value in _flat(config).items() if value != reference.get(field)}


def identity(config: ConfigDict) -> str:
    """Ten hexadecimal digits that differ where two configs ask for different numbers."""
    deciding = {field: value for field, value in _flat(config).items() if field not in INCIDENTAL}
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:10]


def _read(path: str) -> ConfigDict:
    file, colon, argument = path.partition(":")
    if not Path(file).is_file():
        raise UsageError(f"--config={path}: there is no file {file}")
    spec = importlib.util.spec_from_file_location("config_file", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"--config={path}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        arguments = (argument,) if colon else ()
        inspect.signature(module.get_config).bind(*arguments)
        config = module.get_config(*arguments)
    except Exception as error:
        raise UsageError(f"--config={path}: {type(error).__name__}: {_line(error)}") from error
    if not isinstance(config, ConfigDict):
        raise UsageError(f"--config={path}: get_config() gives a {type(config).__name__}, not a ConfigDict")
    for section in NAMED:
        if not isinstance(config.get(section), ConfigDict) or "name" not in config[section]:
            raise UsageError(f"--config={path}: config.{section} must be a ConfigDict with a name")
    return config


def _split(override: str) -> tuple[str, str]:
    match = re.fullmatch(r"--config\.([\w.]+)=(.*)", override, re.DOTALL)
    if not match:
        raise UsageError(f"{override!r} is not understood; an override is written --config.field=value")
    return match[1], match[2]


def _resolve(section: str, given: ConfigDict) -> ConfigDict:
    """All fields of what `given.name` names; those that may be None accept None and anything else."""
    hyperparameters, make = NAMED[section]
    try:
        defaults = hyperparameters(given.name)
        make(given.name, **{field: defaults.get(field) for field in given if field != "name"})
    except ValueError as error:
        raise UsageError(f"config.{section}: {_line(error)}") from error
    resolved = ConfigDict({"name": given.name})
    hints = typing.get_type_hints(type(make(given.name)))
    for field, default in defaults.items():
        if types.NoneType in typing.get_args(hints[field]):
            resolved[field] = config_dict.placeholder(object)
        else:
            resolved[field] = default
        try:
            resolved[field] = given.get(field, default)
        except TypeError as error:
            raise UsageError(f"config.{section}.{field}={given[field]!r}: {_line(error)}") from error
    return resolved


def _override(config: ConfigDict, values: dict[str, str]) -> ConfigDict:
    for field, value in values.items():
        check_known(field, _flat(config))
    private = flags.FlagValues()
    arguments = ["config", *(f"--config.{field}={value}" for field, value in values.items())]
    config_flags.DEFINE_config_dict("config", config, flag_values=private, sys_argv=arguments)
    try:
        private(arguments)
    except (flags.Error, ValueError, TypeError, AttributeError) as error:
        raise UsageError(_line(error)) from error
    return private.config


def _make(section: str, config: ConfigDict) -> Any:
    fields = config[section].to_dict()
    try:
        return NAMED[section][1](**fields)
    except ValueError as error:
        raise UsageError(f"config.{section}: {_line(error)}") from error


def _flat(config: ConfigDict, prefix: str = "") -> dict[str, Any]:
    flat = {}
    for field, value in config.items():
        flat |= (
            _flat(value, f"{prefix}{field}.") if isinstance(value, ConfigDict) else {prefix + field: value}
        )
    return flat


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
