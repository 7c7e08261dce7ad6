"""Multi-query associative recall."""

import dataclasses
import hashlib
from typing import ClassVar

import numpy as np

from experiments.tasks.task import (
    ENDLESS,
    SPLITS,
    Item,
    Task,
    check_counts,
    check_field,
    check_lengths,
    check_split,
    is_int,
)

FILLER = 0


@dataclasses.dataclass(frozen=True)
class Recall(Task):
    """MQAR (Arora et al. 2023, "Zoology"): bind keys to values, then say the value of each key asked for.

    First `num_pairs` pairs, key then value, keys drawn without replacement from [1, V/2) and values from
    [V/2, V); then each key once more, at every other place, and the model is to predict its value there;
    token 0 fills what is left. Slots near the start are favoured: slot i is drawn without replacement with
    probability proportional to i**(power - 1). With length 12, 2 pairs and V 10 a sample is

        tokens   2 9 3 8 3 0 2 0 0 0 0 0
        targets  . . . . 8 . 9 . . . . .

    Chance is 2/V (0.8% at V 256), and one in `num_pairs` for who says any value of the context. The training
    stream is endless; validation and test are fixed. Solved at 99%. In the paper (figure 2; V 8192, 64 tokens
    with 4 pairs to 512 with 64) attention solves it at every width, while gated convolutions need a width
    that grows with the length.
    """

    name: ClassVar[str] = "recall"
    version: ClassVar[int] = 1
    primary: ClassVar[str] = "accuracy"
    better: ClassVar = "higher"

    length: int = 128
    num_pairs: int = 32
    vocab_size: int = 256  # pyright: ignore[reportIncompatibleMethodOverride]
    power: float = 0.01  # 1: slots are drawn uniformly
    num_validation: int = 256
    num_test: int = 1024
    eval_lengths: tuple[int, ...] = ()

    def __post_init__(self):
        check_counts(self, "num_pairs", "vocab_size", "num_validation", "num_test")
        least = 2 * self.num_pairs + 2
        check_field(self, "vocab_size", f"at least 2 num_pairs + 2 = {least}", self.vocab_size >= least)
        holds = isinstance(self.power, int | float) and self.power > 0
        check_field(self, "power", "a number above 0", holds)
        check_lengths(self, 4 * self.num_pairs)

    @property
    def num_outputs(self) -> int:
        return self.vocab_size

    @property
    def chance(self):
        num_values = self.vocab_size - self.vocab_size // 2
        return {"accuracy": 1 / num_values, "loss": float(np.log(num_values))}

    @property
    def solved(self) -> float:
        return 0.99

    @property
    def splits(self):
        return {"train": ENDLESS, "validation": self.num_validation, "test": self.num_test}

    def source(self, split: str, seed: int, length: int | None = None) -> "RecallSource":
        check_split(split)
        length = self.length if length is None else length
        if not is_int(length, 4 * self.num_pairs):
            least = 4 * self.num_pairs
            raise ValueError(f"recall: length={length} is not accepted; it must be at least {least}")
        return RecallSource(self, split, seed if split == "train" else 0, length)

    def baselines(self):
        """Saying any value of the context: one in `num_pairs`."""
        return {"a value of the context": 1 / self.num_pairs}

    def content_hash(self) -> str:
        """sha256 of some items: it changes with the fields, the generator and NumPy's streams."""
        total = hashlib.sha256()
        for split in SPLITS:
            source = self.source(split, 0)
            for index in range(min(len(source), 64)):
                total.update(source[index]["tokens"].tobytes() + source[index]["targets"].tobytes())
        return total.hexdigest()


@dataclasses.dataclass(frozen=True)
class RecallSource:
    """Items of one split of `task`, `length` tokens each."""

    task: Recall
    split: str
    seed: int
    length: int

    def __len__(self) -> int:
        return self.task.splits[self.split]

    def __getitem__(self, index: int) -> Item:
        if not 0 <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        task, pairs = self.task, self.task.num_pairs
        draw = np.random.default_rng((self.seed, SPLITS.index(self.split), self.length, index))
        half = task.vocab_size // 2
        keys = 1 + draw.permutation(half - 1)[:pairs]
        values = half + draw.permutation(task.vocab_size - half)[:pairs]
        num_slots = (self.length - 2 * pairs) // 2
        favour = np.arange(1, num_slots + 1, dtype=np.float64) ** (task.power - 1)
        slots = draw.choice(num_slots, pairs, replace=False, p=favour / favour.sum())
        tokens, targets = np.full((2, self.length), FILLER, np.int32)
        tokens[0 : 2 * pairs : 2], tokens[1 : 2 * pairs : 2] = keys, values
        asked = 2 * pairs + 2 * slots
        tokens[asked], targets[asked] = keys, values
        weights = np.zeros(self.length, np.float32)
        weights[asked] = 1
        return {"tokens": tokens, "targets": targets, "weights": weights}
