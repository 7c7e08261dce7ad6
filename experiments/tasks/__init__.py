"""Tasks by name."""

import dataclasses
import difflib
from typing import Any

from experiments.tasks.bytes import Bytes
from experiments.tasks.recall import Recall
from experiments.tasks.task import Task

TASKS: dict[str, type[Task]] = {"bytes": Bytes, "recall": Recall}


def names() -> tuple[str, ...]:
    """Names of all tasks."""
    return tuple(TASKS)


def hyperparameters(name: str) -> dict[str, Any]:
    """Fields of a task and their defaults.

    Raises ValueError for an unknown name.
    """
    return {f.name: f.default for f in dataclasses.fields(_task(name))}  # pyright: ignore[reportArgumentType]


def make(name: str, **fields: Any) -> Task:
    """The task `name` with `fields` in place of its defaults.

    Raises ValueError for an unknown name, an unknown field or a value that the task does not accept.
    """
    accepted = hyperparameters(name)
    for field in fields:
        if field not in accepted:
            hint = difflib.get_close_matches(field, accepted, 1)
            raise ValueError(
                f"task {name!r} has no field {field!r}"
                + (f" (did you mean {hint[0]!r}?)" if hint else "")
                + f"; its fields are {', '.join(accepted)}"
            )
    return _task(name)(**fields)


def _task(name: str) -> type[Task]:
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; known are {', '.join(TASKS)}")
    return TASKS[name]
