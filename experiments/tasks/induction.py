"""Induction heads: what came after this token before?"""

import dataclasses
from typing import ClassVar

import numpy as np

from experiments.tasks.generated import Generated
from experiments.tasks.task import LONGEST, Item, check_counts, check_lengths

TRIGGER = 0


@dataclasses.dataclass(frozen=True)
class Induction(Generated):
    """Say the token that followed the trigger when it came before (Dao et al. 2022, "H3"; Gu and Dao 2023).

    Ordinary tokens 1 to V-1 at random; the trigger 0 stands once at a random place and once more at the end,
    where the model is to predict what followed it. With length 8 and V 10 a sample is

        tokens   9 0 9 6 9 4 7 0
        targets  . . . . . . . 9

    Chance is one in V-1 (6.7% at V 16). The training stream is endless; validation and test are fixed, also
    at other `eval_lengths`: trained at 256, Mamba is reported to hold to 2**20 and attention with usual
    positions to about twice the length it was trained at. Solved at 99%.
    """

    name: ClassVar[str] = "induction"
    version: ClassVar[int] = 1

    length: int = 256
    vocab_size: int = 16  # pyright: ignore[reportIncompatibleMethodOverride]
    num_validation: int = 256
    num_test: int = 1024
    eval_lengths: tuple[int, ...] = ()

    def __post_init__(self):
        check_counts(self, "num_validation", "num_test")
        check_counts(self, "vocab_size", least=3, most=LONGEST)
        check_lengths(self, self.least_length)

    @property
    def least_length(self) -> int:
        return 3

    @property
    def chance(self):
        return {"accuracy": 1 / (self.vocab_size - 1), "loss": float(np.log(self.vocab_size - 1))}

    def baselines(self):
        """None beyond chance: nothing but the trigger's place tells one token from another."""
        return {}

    def draw(self, rng: np.random.Generator, length: int) -> Item:
        tokens = rng.integers(1, self.vocab_size, length, np.int32)
        place = rng.integers(length - 2)
        tokens[[place, -1]] = TRIGGER
        targets, weights = np.zeros(length, np.int32), np.zeros(length, np.float32)
        targets[-1], weights[-1] = tokens[place + 1], 1
        return {"tokens": tokens, "targets": targets, "weights": weights}
