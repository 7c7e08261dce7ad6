"""From a config file and the command line to one resolved and checked config."""

import hashlib
import json
import re
import types
import typing
from collections.abc import Callable
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_dict, config_flags

import attention
from experiments import tasks
from experiments.config import budget, config_file
from experiments.config.checks import (
    RULES,
    UsageError,
    check_fields,
    check_known,
    check_together,
    check_warmup,
    one_line,
    refuse,
)
from experiments.fields import Config, flat
from experiments.tasks.task import Task

# Sections that name something: how to ask for its fields and their defaults, and how to build it.
NAMED: dict[str, tuple[Callable[[str], dict[str, Any]], Callable[..., Any]]] = {
    "attention": (attention.hyperparameters, attention.make),
    "task": (tasks.hyperparameters, tasks.make),
}
BAD_VALUES = (flags.Error, ValueError, TypeError, RecursionError, MemoryError)  # as absl raises for them
# What has no bearing on the numbers: `seeds_at_once` only within rounding, and a table says where it differs.
INCIDENTAL = (
    "name", "seeds", "train.checkpoint_every", "train.log_every", "train.seeds_at_once", "eval.timed_steps",
    "eval.diagnose", "eval.sample_tokens",
)  # fmt: skip
# Fields that came when there were results already. With these values they say what was so before.
LATER = {"mesh.data": 1, "mesh.sequence": 1, "train.flops": None, "eval.sample_tokens": 0}


def load(path: str, overrides: list[str]) -> Config:
    """The config of a file, with the command line's changes, every field resolved, checked and locked.

    `path` may end in `:argument`, which is handed to the file's `get_config`. An override is
    `--config.field=value`; of two for one field the last counts. A new `attention.name` or `task.name` first
    replaces all fields of the old one by the new one's defaults. Raises UsageError, one line, for anything
    wrong.
    """
    config = config_file.read_config(path)
    for section in NAMED:
        named = config.get(section)
        if not isinstance(named, ConfigDict) or not isinstance(named.get("name"), str):
            raise UsageError(f"--config={path}: config.{section} must be a ConfigDict with a name")
    values = dict(_split(override) for override in overrides)
    for section in NAMED:
        name = values.pop(f"{section}.name", config[section].name)
        given = config[section].to_dict() if name == config[section].name else {}
        config[section] = _resolve(section, given | {"name": name})
    config = _override(config, values)
    check_fields({f: v for f, v in flat(config).items() if f.partition(".")[0] not in NAMED})
    chosen, given = variant(config), task(config)
    check_together(config, chosen, given)
    config.train.steps = budget.steps(config, chosen, given)
    check_warmup(config)
    return config.lock()


def recorded(fields: dict[str, Any]) -> Config:
    """The config of a record, by its fields as JSON has them."""
    fields = _as_tuples(fields)
    for field, value in LATER.items():
        section, _, name = field.partition(".")
        fields.setdefault(section, {}).setdefault(name, value)
    return ConfigDict(fields).lock()


def _as_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_tuples(item) for name, item in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def variant(config: Config) -> attention.Attention:
    """The variant that the config names."""
    return _make("attention", config)


def task(config: Config) -> Task:
    """The task that the config names."""
    return _make("task", config)


def differences(config: Config, defaults: Config) -> dict[str, Any]:
    """Fields, as "section.field", that differ from `defaults` (base's) or, inside attention and task, from
    the defaults of what is named there."""
    reference = flat(defaults)
    for section, (hyperparameters, _) in NAMED.items():
        own = hyperparameters(config[section].name)
        reference |= {f"{section}.{field}": default for field, default in own.items()}
    return {field: value for field, value in flat(config).items() if value != reference[field]}


def incidental(fields: dict[str, Any]) -> tuple[str, ...]:
    """Those of a config's fields, "section.field", that have no bearing on its numbers."""
    # Of an old record there may be no such field.
    chosen = ("optimizer.learning_rate",) if fields.get("optimizer.learning_rate_grid") else ()
    return (*INCIDENTAL, *chosen)


def identity(config: Config) -> str:
    """Ten hexadecimal digits that differ where two configs ask for different numbers."""
    fields = flat(config)
    left_out = incidental(fields)
    deciding = {
        field: _number(value)
        for field, value in fields.items()
        if field not in left_out and LATER.get(field, ...) != value
    }
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:10]


def _split(override: str) -> tuple[str, str]:
    match = re.fullmatch(r"--config\.([\w.]+)=(.*)", override, re.DOTALL)
    if not match:
        what = "has no value" if re.fullmatch(r"--config\.[\w.]+", override) else "is not understood"
        raise UsageError(f"{override!r} {what}; an override is written --config.field=value")
    return match[1], match[2]


def _resolve(section: str, given: dict[str, Any]) -> ConfigDict:
    """All fields of what `given` names: the given ones and the defaults of the others."""
    hyperparameters, make = NAMED[section]
    try:
        defaults, hints = hyperparameters(given["name"]), typing.get_type_hints(type(make(**given)))
    except (TypeError, ValueError) as error:
        raise UsageError(f"config.{section}: {one_line(error)}") from error
    resolved = ConfigDict({"name": given["name"]})
    for field, default in defaults.items():
        # A field that may be None takes anything here; the class itself says what it accepts.
        may_be_none = types.NoneType in typing.get_args(hints[field])
        resolved[field] = config_dict.placeholder(object) if may_be_none else default
        try:
            resolved[field] = given.get(field, default)
        except TypeError as error:
            like = f"of type {type(default).__name__}, like {default!r}"
            refuse(f"{section}.{field}", given[field], like, cause=error)
    return resolved


def _override(config: Config, values: dict[str, str]) -> Config:
    for field in values:
        check_known(field, flat(config))
    try:
        return _parsed(config, values)
    except BAD_VALUES:
        pass
    for field, value in values.items():  # which of them?
        try:
            config = _parsed(config, {field: value})
        except BAD_VALUES as error:
            like = flat(config)[field]
            accepted = RULES[field][0] if field in RULES else f"of type {type(like).__name__}, like {like!r}"
            refuse(field, value, accepted, cause=error)
    return config


def _parsed(config: Config, values: dict[str, str]) -> Config:
    arguments = ["config", *(f"--config.{field}={value}" for field, value in values.items())]
    private = flags.FlagValues()
    config_flags.DEFINE_config_dict("config", config, flag_values=private, sys_argv=arguments)
    private(arguments)
    return private["config"].value


def _make(section: str, config: Config) -> Any:
    try:
        return NAMED[section][1](**config[section].to_dict())
    except ValueError as error:
        raise UsageError(f"config.{section}: {one_line(error)}") from error


def _number(value: Any) -> Any:
    """1 and 1.0 ask for the same."""
    if isinstance(value, list | tuple):
        return [_number(each) for each in value]
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole else value
