"""Has anything been learnt? A run that sits at chance is said to."""

import functools
import math
from typing import Any

from experiments.tasks.task import Task

ERRORS = 3  # standard errors above the trivial score that count as better than it
MARGIN = 0.01  # relative, where the metric is no share of right answers


def at_chance(task: Task, score: float) -> bool:
    """Whether a score on the test split is no better than what can be had without looking at the input.

    That is the best one of chance and of the task's `blind` baselines.
    """
    trivial = trivial_score(task)
    if trivial is None:
        return False
    if task.primary == "accuracy":
        return score < trivial + ERRORS * math.sqrt(trivial * (1 - trivial) / _scored(task))
    worse = 1 - MARGIN if task.better == "lower" else 1 + MARGIN
    return score > trivial * worse if task.better == "lower" else score < trivial * worse


@functools.cache
def trivial_score(task: Task) -> float | None:
    """What is scored without a look at the input, None if the task does not say."""
    baselines = task.baselines()
    known: list[Any] = [task.chance.get(task.primary), *(baselines.get(name) for name in task.blind)]
    scores = [score for score in known if score is not None]
    return (min if task.better == "lower" else max)(scores) if scores else None


@functools.cache
def _scored(task: Task) -> float:
    """How many predictions a score on the test split is a mean of."""
    source = task.source("test", 0)
    return sum(float(source[index]["weights"].sum()) for index in range(len(source)))
