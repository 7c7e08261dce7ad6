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

from experiments import tasks
from experiments.config import budget, config_file
from experiments.config.checks import (
    LAYERS,
    MIXERS,
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
from experiments.model import registry
from experiments.model.registry import Mixer
from experiments.tasks.task import Task

# Sections that name something: how to ask for its fields and their defaults, and how to build it.
NAMED: dict[str, tuple[Callable[[str], dict[str, Any]], Callable[..., Any]]] = {
    "attention": (registry.hyperparameters, registry.make),
    "task": (tasks.hyperparameters, tasks.make),
}
BAD_VALUES = (flags.Error, ValueError, TypeError, RecursionError, MemoryError)  # as absl raises for them
# What has no bearing on the numbers: `seeds_at_once` only within rounding, and a table says where it differs.
INCIDENTAL = (
    "name", "seeds", "train.checkpoint_every", "train.log_every", "train.seeds_at_once", "eval.timed_steps",
    "eval.diagnose", "eval.sample_tokens",
)  # fmt: skip
# Fields that came when there were results already. With these values they say what was so before.
LATER = {
    "mesh.data": 1, "mesh.sequence": 1, "train.flops": None, "eval.sample_tokens": 0, LAYERS: "attention",
}  # fmt: skip


def load(path: str, overrides: list[str]) -> Config:
    """The config of a file, with the command line's changes, every field resolved, checked and locked.

    `path` may end in `:argument`, which is handed to the file's `get_config`. An override is
    `--config.field=value`; of two for one field the last counts. A new `attention.name`, `task.name` or
    `mixers.LABEL.name` first replaces all fields of the old one by the new one's defaults. Raises UsageError,
    one line, for anything wrong.
    """
    config = config_file.read_config(path)
    for section in NAMED:
        named = config.get(section)
        if not isinstance(named, ConfigDict) or not isinstance(named.get("name"), str):
            raise UsageError(f"--config={path}: config.{section} must be a ConfigDict with a name")
    values = dict(_split(override) for override in overrides)
    for section in NAMED:
        config[section] = _renamed(section, config[section].to_dict(), values)
    config = _with_mixers(path, config, values)
    config = _override(config, values)
    check_fields({f: v for f, v in flat(config).items() if f.partition(".")[0] not in (*NAMED, MIXERS)})
    chosen, given = mixers(config), task(config)
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


def mixers(config: Config) -> tuple[Mixer, ...]:
    """What the layers mix their tokens by, in turn: the first layer by the first, and so on around."""
    return tuple(_make(at, own) for at, own in _of_layers(config))


def layers(config: Config) -> list[dict[str, Any]]:
    """The mixers of the layers in turn, each by its fields."""
    return [own.to_dict() for _, own in _of_layers(config)]


def _of_layers(config: Config) -> list[tuple[str, Config]]:
    return [
        (label, config[label]) if label in NAMED else (f"{MIXERS}.{label}", config[MIXERS][label])
        for label in _labels(config)
    ]


def _labels(config: Config) -> list[str]:
    return config.model.layers.split(",")


def task(config: Config) -> Task:
    """The task that the config names."""
    return _make("task", config.task)


def differences(config: Config, defaults: Config) -> dict[str, Any]:
    """Fields, as "section.field", that differ from `defaults` (base's) or, inside attention, mixers and task,
    from the defaults of what is named there."""
    reference = flat(defaults)
    named = {section: config[section] for section in NAMED}
    named |= {f"{MIXERS}.{label}": own for label, own in config[MIXERS].items()}
    for at, own in named.items():
        hyperparameters, _ = _functions(at)
        reference |= {f"{at}.{field}": default for field, default in hyperparameters(own.name).items()}
    return {field: value for field, value in flat(config).items() if value != reference.get(field, ...)}


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


def _functions(at: str) -> tuple[Callable[[str], dict[str, Any]], Callable[..., Any]]:
    return NAMED[at if at in NAMED else "attention"]


def _renamed(at: str, given: dict[str, Any], values: dict[str, str]) -> ConfigDict:
    """All fields of a section, whose name may be another one by `values`, where it is then done with."""
    name = values.pop(f"{at}.name", given["name"])
    return _resolve(at, given | {"name": name} if name == given["name"] else {"name": name})


def _with_mixers(path: str, config: Config, values: dict[str, str]) -> Config:
    """The config with all fields of the mixers that its layers ask for.

    A label without a section, or without a name there, is the name. Sections that no layer asks for are
    refused, and dropped if it is the command line that says which layers there are.
    """
    asked = LAYERS in values
    if asked:
        config = _override(config, {LAYERS: values.pop(LAYERS)})
    given = config.get(MIXERS, ConfigDict())
    if not isinstance(given, ConfigDict) or not all(isinstance(each, ConfigDict) for each in given.values()):
        raise UsageError(f"--config={path}: config.{MIXERS} must be a ConfigDict of ConfigDicts")
    own, layers = given.to_dict(), flat(config).get(LAYERS)
    if layers is None or not RULES[LAYERS][1](layers):
        return config  # `check_fields` refuses it
    unused = [label for label in own if label not in _labels(config)]
    if unused and not asked:
        raise UsageError(f"config.{MIXERS}.{unused[0]} is of no layer: config.{LAYERS}={layers!r}")
    resolved = {
        label: _renamed(f"{MIXERS}.{label}", {"name": label} | own.get(label, {}), values)
        for label in dict.fromkeys(_labels(config))
        if label != "attention"
    }
    with config.unlocked():
        config[MIXERS] = ConfigDict(resolved)
    return config


def _resolve(section: str, given: dict[str, Any]) -> ConfigDict:
    """All fields of what `given` names: the given ones and the defaults of the others."""
    hyperparameters, make = _functions(section)
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


def _make(at: str, section: Config) -> Any:
    try:
        return _functions(at)[1](**section.to_dict())
    except ValueError as error:
        raise UsageError(f"config.{at}: {one_line(error)}") from error


def _number(value: Any) -> Any:
    """1 and 1.0 ask for the same."""
    if isinstance(value, list | tuple):
        return [_number(each) for each in value]
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole else value
