"""What a task is: data in three splits, a metric, and what to hold the metric against."""

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

SPLITS = ("train", "validation", "test")
Item = dict[str, np.ndarray]
Sums = dict[str, tuple[Float[Array, ""], Float[Array, ""]]]


class Source(Protocol):
    """Items of one split: item i is the same whenever and wherever it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Item:
        """tokens T int32, targets T int32 and weights T float32 (0: not scored)."""
        ...


class Task(abc.ABC):
    """A task. Subclasses are frozen dataclasses, validated when built; their fields are `config.task`."""

    name: ClassVar[str]
    version: ClassVar[int]  # raised whenever the same fields give other items
    head: ClassVar[Literal["token", "pooled"]] = "token"  # one prediction for each token, or one for all
    causal: ClassVar[bool] = True
    primary: ClassVar[str]  # the metric that decides which step is best
    better: ClassVar[Literal["lower", "higher"]]

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
        """Items of a split. Only the training split depends on `seed`. `length`: other than `self.length`."""

    @abc.abstractmethod
    def baselines(self) -> Mapping[str, float]:
        """What simple methods score in the primary metric, on the test split."""

    @abc.abstractmethod
    def content_hash(self) -> str:
        """sha256 of what the items are made of."""

    def losses(self, logits: Float[Array, "B T O"], batch: Mapping[str, Any]) -> Sums:
        """Sum and weight of each metric over a batch: cross-entropy in nats, as "loss", and "accuracy"."""
        targets, weights = batch["targets"], batch["weights"]
        logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
        chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        loss = jax.nn.logsumexp(logits, -1) - chosen
        right = (logits.argmax(-1) == targets).astype(logits.dtype)
        total = weights.sum()
        return {"loss": ((loss * weights).sum(), total), "accuracy": ((right * weights).sum(), total)}


ENDLESS = 2**31 - 1


def check_split(split: str) -> None:
    """Raises ValueError for a name that is no split."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; known are {', '.join(SPLITS)}")


def check_lengths(task: Task, least: int) -> None:
    """Raises ValueError unless `length` and every one of `eval_lengths` is an int of at least `least`."""
    lengths = (task.length, *task.eval_lengths)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= least for n in lengths):
        raise ValueError(
            f"{task.name}: length={task.length!r}, eval_lengths={task.eval_lengths!r} are not accepted; "
            f"each must be an int of at least {least}"
        )
