"""Tasks by name."""

import dataclasses
import difflib
from typing import Any

from experiments.tasks.bytes import Bytes
from experiments.tasks.induction import Induction
from experiments.tasks.listops import ListOps
from experiments.tasks.recall import Recall
from experiments.tasks.selective_copy import SelectiveCopy
from experiments.tasks.task import Task
from experiments.tasks.text import Text

TASKS: dict[str, type[Task]] = {
    "bytes": Bytes,
    "recall": Recall,
    "induction": Induction,
    "selective_copy": SelectiveCopy,
    "listops": ListOps,
    "text": Text,
}


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
