"""Multi-query associative recall."""

import dataclasses
from typing import ClassVar

import numpy as np

from attention.check import check_field
from experiments.tasks.generated import Generated
from experiments.tasks.task import LONGEST, Item, check_counts, check_lengths

FILLER = 0
STEEPEST = 16  # power: the sum over all slots of the longest item is still a float


@dataclasses.dataclass(frozen=True)
class Recall(Generated):
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

    length: int = 128
    num_pairs: int = 32
    vocab_size: int = 256  # pyright: ignore[reportIncompatibleMethodOverride]
    power: float = 0.01  # 1: slots are drawn uniformly
    num_validation: int = 256
    num_test: int = 1024
    eval_lengths: tuple[int, ...] = ()

    def __post_init__(self):
        check_counts(self, "num_pairs", "num_validation", "num_test")
        check_counts(self, "vocab_size", most=LONGEST)
        least = 2 * self.num_pairs + 2
        check_field(self, "vocab_size", f"at least 2 num_pairs + 2 = {least}", self.vocab_size >= least)
        holds = isinstance(self.power, int | float) and 0 < self.power <= STEEPEST
        check_field(self, "power", f"a number above 0 and at most {STEEPEST}", holds)
        check_lengths(self, self.least_length)

    @property
    def least_length(self) -> int:
        return 4 * self.num_pairs

    @property
    def chance(self):
        num_values = self.vocab_size - self.vocab_size // 2
        return {"accuracy": 1 / num_values, "loss": float(np.log(num_values))}

    def baselines(self):
        """Saying any value of the context: one in `num_pairs`."""
        return {"a value of the context": 1 / self.num_pairs}

    def draw(self, rng: np.random.Generator, length: int) -> Item:
        half = self.vocab_size // 2
        keys = 1 + rng.permutation(half - 1)[: self.num_pairs]
        values = half + rng.permutation(self.vocab_size - half)[: self.num_pairs]
        context = 2 * self.num_pairs
        num_slots = (length - context) // 2
        favour = np.arange(1, num_slots + 1, dtype=np.float64) ** (self.power - 1)
        slots = rng.choice(num_slots, self.num_pairs, replace=False, p=favour / favour.sum())
        tokens, targets = np.full((2, length), FILLER, np.int32)
        tokens[0:context:2], tokens[1:context:2] = keys, values
        asked = context + 2 * slots
        tokens[asked], targets[asked] = keys, values
        weights = np.zeros(length, np.float32)
        weights[asked] = 1
        return {"tokens": tokens, "targets": targets, "weights": weights}
