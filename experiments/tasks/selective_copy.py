"""Selective copying: what was said among the noise, in order."""

import dataclasses
from typing import ClassVar

import numpy as np

from experiments.tasks.generated import Generated
from experiments.tasks.task import LONGEST, Item, check_counts, check_lengths

NOISE, MARKER = 0, 1


@dataclasses.dataclass(frozen=True)
class SelectiveCopy(Generated):
    """Copy the tokens that stand at random places among noise, in their order (Gu and Dao 2023, "Mamba").

    `num_tokens` tokens from [2, V) at random places of the first part, noise (0) around them; then a marker
    (1) for each, where the model is to say them. With length 10, 3 tokens and V 8 a sample is

        tokens   0 2 0 2 0 0 3 1 1 1
        targets  . . . . . . . 2 2 3

    Chance is one in V-2 (7.1% at V 16). The training stream is endless; validation and test are fixed, also
    at other `eval_lengths`. The paper has 16 tokens among 4,096 and reports the share of tokens that are
    right: 99.8 for Mamba, 18.3 for S4. Solved at 99%.
    """

    name: ClassVar[str] = "selective_copy"
    version: ClassVar[int] = 1

    length: int = 256
    num_tokens: int = 16
    vocab_size: int = 16  # pyright: ignore[reportIncompatibleMethodOverride]
    num_validation: int = 256
    num_test: int = 1024
    eval_lengths: tuple[int, ...] = ()

    def __post_init__(self):
        check_counts(self, "num_tokens", "num_validation", "num_test")
        check_counts(self, "vocab_size", least=4, most=LONGEST)
        check_lengths(self, self.least_length)

    @property
    def least_length(self) -> int:
        return 2 * self.num_tokens

    @property
    def chance(self):
        return {"accuracy": 1 / (self.vocab_size - 2), "loss": float(np.log(self.vocab_size - 2))}

    def baselines(self):
        """None beyond chance: all tokens are equally frequent."""
        return {}

    def draw(self, rng: np.random.Generator, length: int) -> Item:
        first_marker = length - self.num_tokens
        tokens, targets = np.zeros((2, length), np.int32)
        weights = np.zeros(length, np.float32)
        said = rng.integers(2, self.vocab_size, self.num_tokens, np.int32)
        places = np.sort(rng.choice(first_marker, self.num_tokens, replace=False))
        tokens[places], tokens[first_marker:], targets[first_marker:] = said, MARKER, said
        weights[first_marker:] = 1
        return {"tokens": tokens, "targets": targets, "weights": weights}
