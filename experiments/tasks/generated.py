"""What generated tasks share: endless training items, fixed validation and test, drawn item by item."""

import abc
import dataclasses
import hashlib
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from experiments.tasks.task import ENDLESS, SPLITS, Item, Source, Task, check_index, check_split, is_int

HASHED_ITEMS = 64  # of each split; more would make the data of every record so far other data


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
        check_index(index, self.size)
        entropy = (self.seed, SPLITS.index(self.split), self.length, index)
        return self.draw(np.random.default_rng(entropy), self.length)


class Generated(Task):
    """A task whose items are drawn, and which is solved at 99%. Subclasses say `least_length` and `draw`."""

    primary: ClassVar[str] = "accuracy"
    better: ClassVar = "higher"

    num_validation: int
    num_test: int

    @property
    @abc.abstractmethod
    def least_length(self) -> int:
        """Tokens of the shortest item that there can be."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, length: int) -> Item:
        """An item of `length` tokens."""

    @property
    def num_outputs(self) -> int:
        return self.vocab_size

    @property
    def solved(self) -> float:
        return 0.99

    @property
    def splits(self):
        return {"train": ENDLESS, "validation": self.num_validation, "test": self.num_test}

    def source(self, split: str, seed: int, length: int | None = None) -> Source:
        check_split(split)
        length = self.length if length is None else length
        if not is_int(length, self.least_length):
            accepted = f"an int of at least {self.least_length}"
            raise ValueError(f"{self.name}: length={length} is not accepted; it must be {accepted}")
        return GeneratedSource(self.draw, split, seed if split == "train" else 0, length, self.splits[split])

    def content_hash(self) -> str:
        """sha256 of the tokens and targets of each split's first `HASHED_ITEMS`, at the task's length.

        They change with the generator and NumPy's streams, as all items then do. How many items there are,
        and at which `eval_lengths`, they do not tell: these are fields, and compared as such.
        """
        total = hashlib.sha256()
        for split in SPLITS:
            found = self.source(split, 0)
            for index in range(min(len(found), HASHED_ITEMS)):
                total.update(found[index]["tokens"].tobytes() + found[index]["targets"].tobytes())
        return total.hexdigest()
