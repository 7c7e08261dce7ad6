"""Nested data with other values in it."""

from typing import Any


def changed(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The tree itself, with each value put in its place: "task__name" is tree["task"]["name"]."""
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = tree
        for parent in parents:
            place = place[parent]
        place[last] = value
    return tree
