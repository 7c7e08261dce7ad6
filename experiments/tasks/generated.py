"""What generated tasks share: endless training items, fixed validation and test, drawn item by item."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.tasks.task import ENDLESS, SPLITS, Item, check_split, is_int

HASHED_ITEMS = 64  # of each split


@dataclasses.dataclass(frozen=True)
class GeneratedSource:
    """Items that `draw(random numbers, length)` makes; item i depends on split, seed, length and i alone."""

    draw: Callable[[np.random.Generator, int], Item]
    split: str
    seed: int
    length: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Item:
        if not 0 <= index < self.size:
            raise IndexError(f"item {index} of {self.size}")
        entropy = (self.seed, SPLITS.index(self.split), self.length, index)
        return self.draw(np.random.default_rng(entropy), self.length)


def splits(task: Any) -> dict[str, int]:
    """An endless training split, and the numbers of the task's fields for the others."""
    return {"train": ENDLESS, "validation": task.num_validation, "test": task.num_test}


def source(task: Any, split: str, seed: int, length: int | None, least: int) -> GeneratedSource:
    """Raises ValueError for an unknown split or a length below `least`."""
    check_split(split)
    length = task.length if length is None else length
    if length is None or not is_int(length, least):
        raise ValueError(
            f"{task.name}: length={length} is not accepted; it must be an int of at least {least}"
        )
    return GeneratedSource(task.draw, split, seed if split == "train" else 0, length, task.splits[split])


def content_hash(task: Any) -> str:
    """sha256 of some items: it changes with the fields, the generator and NumPy's streams."""
    total = hashlib.sha256()
    for split in SPLITS:
        found = task.source(split, 0)
        for index in range(min(len(found), HASHED_ITEMS)):
            total.update(found[index]["tokens"].tobytes() + found[index]["targets"].tobytes())
    return total.hexdigest()
