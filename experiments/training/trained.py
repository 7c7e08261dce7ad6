"""A trained model from what its run left."""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from experiments import records
from experiments.config import settings
from experiments.fields import Config
from experiments.records import Record
from experiments.tasks.task import Task
from experiments.training import checkpoint, program
from experiments.training.fit import checkpoints
from experiments.training.train import Params


@dataclasses.dataclass(frozen=True)
class Trained:
    """The model of one seed of a run: the parameters that were tested, or the last before it diverged."""

    record: Record
    config: Config
    task: Task
    params: Params
    seed: int
    step: int  # after which the parameters were so


def load(folder: Path, seed: int | None = None) -> Trained:
    """From a run's folder; unless one is given, its first seed that was trained to its end, or that was not.

    Raises OSError, ValueError, or `checkpoint.DamagedError`, if the parameters, or the data that they were
    trained on, cannot be had. Other code than the record's is not refused, if it knows the same parameters.
    """
    record = records.demanded(folder)
    try:
        config = settings.recorded(record["config"])
        task = settings.task(config)
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{folder}: its config is not whole: {error}") from error
    kept = {int(name): step for name, entry in record["seeds"].items() if (step := _step(entry)) is not None}
    ended = {name for name in kept if record["seeds"][str(name)]["outcome"] == records.FINISHED}
    chosen = min(ended or kept, default=None) if seed is None else seed
    if chosen not in kept:
        known = ", ".join(map(str, kept)) or "none"
        asked = "" if chosen is None else f" of seed {chosen}"
        raise ValueError(f"{folder} has no trained parameters{asked}; it has those of seeds: {known}")
    for name, here in (("version", task.version), ("sha256", task.content_hash())):
        if here != record["task"][name]:
            raise ValueError(f"{folder}: the data's {name} was {record['task'][name]}, and is {here}")
    group = next((tuple(group) for group in record["groups"] if chosen in group), (chosen,))
    if kept[chosen] not in checkpoint.steps(checkpoints(folder, group)):
        raise ValueError(
            f"{folder} has no checkpoint of step {kept[chosen]} of seed {chosen}: where records alone "
            f"were kept, train it again, by the lines of python -m experiments.reproduce {folder}"
        )
    abstract: Any = program.abstract_state(config, task, len(group))
    state = checkpoint.restore(checkpoints(folder, group), kept[chosen], abstract).state
    params = jax.tree.map(lambda leaf: leaf[group.index(chosen)], state.evaluated)
    return Trained(record, config, task, params, chosen, kept[chosen])


def _step(entry: dict[str, Any]) -> int | None:
    """Of the checkpoint that holds what became of a seed."""
    if entry["outcome"] == records.FINISHED:
        return entry.get("best_step")
    return entry.get("last_good_step")
