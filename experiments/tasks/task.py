"""What a task is: data in three splits, a metric, and what to hold the metric against."""

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from attention.check import check_count, check_field, is_int

SPLITS = ("train", "validation", "test")
LONGEST = 2**26  # tokens of an item, and numbers of tokens: more is a mistake
ENDLESS = 2**31 - 1  # items of a generated training split: more than anyone trains on
Item = dict[str, np.ndarray]
Sums = dict[str, tuple[Float[Array, ""], Float[Array, ""]]]


@runtime_checkable
class Source(Protocol):
    """Items of one split: item i is the same whenever and wherever it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Item:
        """`tokens` T int32; `targets` int32 and `weights` float32 (0: not scored), T each, or no axis for a
        pooled head; and `valid` T bool (False: padding) if the task pads."""
        ...


class Task(abc.ABC):
    """A task. Subclasses are frozen dataclasses, validated when built; their fields are `config.task`."""

    name: ClassVar[str]
    version: ClassVar[int]  # raised whenever the same fields give other items
    head: ClassVar[Literal["token", "pooled"]] = "token"  # one prediction for each token, or one for all
    causal: ClassVar[bool] = True
    pads: ClassVar[bool] = False  # items have `valid`
    primary: ClassVar[str]  # the metric that decides which step is best
    better: ClassVar[Literal["lower", "higher"]]
    prompt: ClassVar[str | None] = None  # what a trained model's sample begins with, where one can be read
    blind: ClassVar[tuple[str, ...]] = ("majority",)  # baselines, if it has them, that do not see the input

    length: int
    eval_lengths: tuple[int, ...]

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int: ...

    @property
    @abc.abstractmethod
    def num_outputs(self) -> int: ...

    @property
    @abc.abstractmethod
    def chance(self) -> Mapping[str, float]:
        """What guessing scores, by metric."""

    @property
    def solved(self) -> float | None:
        """Score of the primary metric at which the task counts as learnt, if there is one."""
        return None

    @property
    @abc.abstractmethod
    def splits(self) -> Mapping[str, int]:
        """Items of each split; an endless one has ENDLESS."""

    @abc.abstractmethod
    def source(self, split: str, seed: int, length: int | None = None) -> Source:
        """Items of a split. Only the training split depends on `seed`. `length`: other than `self.length`.

        Raises ValueError for an unknown split or a length that the task cannot have.
        """

    @abc.abstractmethod
    def baselines(self) -> Mapping[str, float]:
        """What simple methods score in the primary metric, on the test split."""

    @abc.abstractmethod
    def content_hash(self) -> str:
        """sha256 of what the items are made of."""

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, T int32: whole numbers with spaces between, where a task reads no text.

        Raises ValueError for what cannot be read.
        """
        words = text.split()
        if not all(word.isascii() and word.isdigit() and int(word) < self.vocab_size for word in words):
            raise ValueError(
                f"{self.name}: text={text!r} is not accepted; it must be numbers below {self.vocab_size} "
                "with spaces between"
            )
        return np.array([int(word) for word in words], np.int32)

    def decode(self, tokens: np.ndarray) -> list[str]:
        """What stands for each token in a picture."""
        return [str(int(token)) for token in tokens]

    def write(self, tokens: np.ndarray) -> str:
        """The text of tokens, as `encode` reads it."""
        return " ".join(str(int(token)) for token in tokens)

    def losses(self, logits: Float[Array, "*batch O"], batch: Mapping[str, Any]) -> Sums:
        """Each metric's weighted sum over a batch, and the sum of the weights.

        `logits` are B T O, or B O for a pooled head. "loss" is the cross-entropy in nats, which training
        lowers; "accuracy" is in [0, 1].
        """
        targets, weights = batch["targets"], batch["weights"]
        logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        right = logits.argmax(-1) == targets
        total = weights.sum()
        return {"loss": ((loss * weights).sum(), total), "accuracy": ((right * weights).sum(), total)}


def check_split(split: str) -> None:
    """Raises ValueError for a name that is no split."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; known are {', '.join(SPLITS)}")


def check_index(index: int, size: int) -> None:
    """Raises IndexError unless there is an item of this number among `size`."""
    if not 0 <= index < size:
        raise IndexError(f"item {index} of {size}")


def check_counts(task: Task, *fields: str, least: int = 1, most: int = ENDLESS) -> None:
    """Raises ValueError unless each field is an int from `least` to `most`."""
    for field in fields:
        check_count(task, field, least=least, most=most)


def check_lengths(task: Task, least: int) -> None:
    """Raises ValueError unless `length` and every one of `eval_lengths` is an int of at least `least`."""
    check_field(task, "length", f"an int of at least {least}", is_int(task.length, least))
    check_field(task, "length", f"at most {LONGEST}", task.length <= LONGEST)
    holds = isinstance(task.eval_lengths, tuple) and all(
        is_int(n, least) and n <= LONGEST for n in task.eval_lengths
    )
    check_field(task, "eval_lengths", f"a tuple of ints of at least {least}", holds)


def check_data_dir(task: Any) -> None:
    """Raises ValueError unless `data_dir` is a folder or None."""
    holds = task.data_dir is None or (isinstance(task.data_dir, str) and Path(task.data_dir).is_dir())
    check_field(task, "data_dir", "a folder or None", holds)
