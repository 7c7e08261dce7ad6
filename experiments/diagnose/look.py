"""One look at a model: its heads, its gradient by part, and what stands out."""

import dataclasses
import functools
import itertools
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int

from experiments import records
from experiments.diagnose import findings, heads, inside
from experiments.diagnose.findings import Look
from experiments.fields import Config
from experiments.tasks.task import Task
from experiments.training import data, train

TOKENS, ALL_TOKENS = 1024, 2048  # of an item, and together, at the most: their weights are written out


@dataclasses.dataclass(frozen=True)
class Looker:
    """Looks at the models of one config, each time at the same validation items: the first ones.

    Heads as evaluation has them; the gradient is that of the same parameters on the items, not on a training
    batch. Programs are compiled at the first look, for one device. `seconds` of a look is what it took, that
    of compiling included.
    """

    config: Config
    task: Task

    def __call__(self, seed: int, step: int, params: train.Params) -> Look:
        """At a seed's parameters after a step: JSON. Raises ValueError where the data are not there."""
        start = time.perf_counter()
        before = self.before(seed)
        now = before if step == 0 else self._seen(seed, step, params)
        told = {"findings": findings.findings(now, before), "seconds": time.perf_counter() - start}
        return {**now, **told}

    @functools.cached_property
    def programs(self) -> inside.Inside:
        return inside.of(self.config, self.task)

    @functools.cached_property
    def sample(self) -> tuple[Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"] | None]:
        """The first validation items, or their first part: tokens, and which of them are real."""
        length = min(self.task.length, TOKENS)
        source = self.task.source("validation", 0)
        items = [source[i] for i in range(min(len(source), ALL_TOKENS // length))]
        tokens = np.stack([item["tokens"][:length] for item in items])
        valid = np.stack([item["valid"][:length] for item in items]) if self.task.pads else None
        return tokens, valid

    @functools.cached_property
    def batch(self) -> data.Batch:
        batches = data.eval_batches(self.task, "validation", self.config.train.batch_size)
        return next(itertools.islice(batches, 1))

    def before(self, seed: int) -> Look:
        """The look at a seed before training."""
        if seed not in self._before:
            self._before[seed] = self._seen(seed, 0, train.init_state(self.config, self.task, seed).evaluated)
        return self._before[seed]

    @functools.cached_property
    def _before(self) -> dict[int, Look]:
        return {}

    def _seen(self, seed: int, step: int, params: train.Params) -> Look:
        tokens, valid = self.sample
        seen, observed = {}, {}
        for layer, own in self.weights(params, tokens, valid):
            even = None if own.uniform is None else np.asarray(own.uniform)
            seen[layer] = heads.statistics(np.asarray(own.matrix), even)
            observed[layer] = {
                name: {"values": _over_items(each.values), "meaning": each.meaning, "least": each.least}
                for name, each in own.observed.items()
            }
        norms = self.programs.gradients(params, self.batch, train.step_rng(seed, step))
        return records.plain(
            {
                "step": step, "items": tokens.shape[0], "tokens": tokens.shape[1],
                "heads": seen, "observed": observed, "gradients": jax.device_get(norms),
            }
        )  # fmt: skip

    def weights(self, params: train.Params, tokens: Any, valid: Any) -> Iterator[tuple[int, inside.Weights]]:
        """Of one layer that has attention after the other."""
        for layer, own in self.programs.inputs(params, tokens, valid).items():
            yield layer, self.programs.weights[layer](own, valid)


def _over_items(values: Any) -> list[float | None]:
    """Means B N -> N, of the items that have a number."""
    values = np.asarray(values)
    return [float(own[np.isfinite(own)].mean()) if np.isfinite(own).any() else None for own in values.T]
