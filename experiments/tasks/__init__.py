"""Tasks by name."""

from typing import Any

from attention.registry import build, fields_of
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
    return fields_of("task", TASKS, name)


def make(name: str, **fields: Any) -> Task:
    """The task `name` with `fields` in place of its defaults.

    Raises ValueError for an unknown name, an unknown field or a value that the task does not accept.
    """
    return build("task", TASKS, name, fields)
