"""What goes into a record, and what follows from it."""

import dataclasses
import datetime
import math
from typing import Any

from experiments import provenance, records
from experiments.config import settings
from experiments.fields import Config, flat
from experiments.model import cost, decoding, registry
from experiments.model.registry import Mixer
from experiments.records import Record
from experiments.report import compare
from experiments.tasks.task import Task
from experiments.training import train

WORST_FIRST = (
    records.FAILED,
    records.OUT_OF_MEMORY,
    records.OUT_OF_MEMORY_COMPILED,
    records.UNFINISHED,
    records.INTERRUPTED,
    records.DIVERGED,
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A config, what it names, and where it is run."""

    config: Config  # resolved
    identity: str  # hash of what decides its numbers
    differences: dict[str, Any]  # from the defaults
    task: Task
    mixers: tuple[Mixer, ...]  # of the layers, in turn
    argv: list[str]
    provenance: dict[str, Any]


def new(cell: Cell, params: Any) -> Record:
    """The record of a cell that has not begun. `params`: parameters of its model, or their descriptions."""
    rate = cell.config.optimizer.learning_rate
    return records.plain(
        {
            "schema": records.SCHEMA,
            "name": cell.config.name,
            "identity": cell.identity,
            "outcome": records.UNFINISHED,
            "reason": None,
            "exit_code": None,
            "not_citable": [],
            "config": cell.config.to_dict(),
            "differences": cell.differences,
            "task": _task(cell.task),
            "attention": _attention(cell.mixers),
            "parameters": cost.parameters(params),
            "flops": cost.flops(cell.config, cell.mixers, cell.task, params),
            "decoding": _decoding(cell, params),
            "memory": {},
            "speed": {},
            "seeds": {},
            "groups": [],  # seeds that were trained at once, as one program
            "grid": {},  # learning rates that were tried
            "learning_rate": None if cell.config.optimizer.learning_rate_grid else rate,
            "not_evaluated": {},  # lengths of eval_lengths, with the reason
            "summary": {},
            "provenance": cell.provenance,
            "sessions": [],
            "timings": list(records.TIMINGS),
        }
    )


def begin_session(record: Record, cell: Cell, changes: list[str]) -> None:
    """A process begins to work on the record. `changes`: in what it differs from the first one."""
    record["config"]["seeds"] = sorted({*record["config"]["seeds"], *cell.config.seeds})
    record["differences"].pop("seeds", None)
    if record["config"]["seeds"] != [0]:
        record["differences"]["seeds"] = record["config"]["seeds"]
    record["outcome"], record["reason"], record["exit_code"] = records.UNFINISHED, None, None
    session = {"began": _now(), "ended": None, "argv": cell.argv, "changes": changes, "exit_code": None}
    git = cell.provenance["git"]
    known = git and {name: git[name] for name in ("commit", "dirty", "diff_sha256")}
    incidental = {field: flat(cell.config.to_dict())[field] for field in settings.INCIDENTAL}
    record["sessions"].append(
        {**session, "git": known, "code_sha256": cell.provenance["code_sha256"], "config": incidental}
    )
    reasons = ["the code is no git checkout"] if git is None else []
    if git and git["dirty"]:
        reasons.append("the working tree differed from its commit")
    reasons += [f"continued although {change}" for change in changes]
    record["not_citable"] = sorted({*record["not_citable"], *reasons})


def end_session(record: Record, seeds: list[int], outcome: str, exit_code: int, reason: str | None) -> None:
    """The process stops. `seeds` were its work; those that it was at share its outcome."""
    for seed in _in_hand(record, seeds):
        record["seeds"][str(seed)] = {"outcome": outcome, "reason": reason}
    record["outcome"], record["reason"], record["exit_code"] = outcome, reason, exit_code
    record["sessions"][-1] |= {"ended": _now(), "exit_code": exit_code}
    record["summary"] = summary(record)


def _in_hand(record: Record, seeds: list[int]) -> list[int]:
    """Of seeds, those without a result in the first group that has any: groups train one after the other.

    All without a result where none is in a group, so that what happened happened to the whole cell.
    """
    left = [seed for seed in seeds if not settled(record, seed)]
    groups = ([seed for seed in group if seed in left] for group in record["groups"])
    return next(filter(None, groups), left)


def settled(record: Record, seed: int) -> bool:
    """Whether a seed has a result, a good one or a divergence, and is not tried again."""
    entry = record["seeds"].get(str(seed), {})
    return entry.get("outcome") in (records.FINISHED, records.DIVERGED)


def changes(record: Record, now: Record) -> list[str]:
    """In what a record that was begun differs from what would be begun now: code, versions, device, data."""
    found = provenance.differences(record["provenance"], now["provenance"])
    for name in ("version", "sha256"):
        before, after = record["task"][name], now["task"][name]
        if before != after:
            found[f"the data's {name}"] = (str(before)[:12], str(after)[:12])
    return [f"{name} was {before}, is {after}" for name, (before, after) in found.items()]


def outcome(record: Record) -> str:
    """Of a run: that of its seeds where they agree, else the worst."""
    entries = [record["seeds"].get(str(seed), {}) for seed in record["config"]["seeds"]]
    found = {entry.get("outcome", records.UNFINISHED) for entry in entries}
    return next((outcome for outcome in WORST_FIRST if outcome in found), records.FINISHED)


def reasons(record: Record) -> list[str]:
    """A phrase for each seed that has something to explain."""
    told = {seed: entry["reason"] for seed, entry in record["seeds"].items() if entry.get("reason")}
    seeds = record["config"]["seeds"]
    again = f"not ended: --config.seeds=({','.join(map(str, seeds))},) goes on with it"
    told |= {str(s): again for s in seeds if not settled(record, s) and str(s) not in told}
    return [f"seed {seed}: {reason}" for seed, reason in told.items()]


def summary(record: Record) -> dict[str, Any]:
    """Test metrics over the seeds: mean, half-width of the interval, n; and how many seeds have none."""
    metrics = {metric for entry in record["seeds"].values() for metric in entry.get("test", {})}
    tests = {m: compare.interval(list(compare.scores(record, m).values())) for m in sorted(metrics)}
    return {"test": tests, "confidence": compare.CONFIDENCE, "failed": len(compare.failures(record))}


def _decoding(cell: Cell, params: Any) -> dict[str, int | None]:
    length = cell.task.length
    graph = train.graph(cell.config, cell.task)
    return {"length": length, "cache_bytes": decoding.cache_bytes(graph, params, length)}


def _task(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "version": task.version,
        "sha256": task.content_hash(),
        "length": task.length,
        "eval_lengths": task.eval_lengths,
        "items": task.splits,
        "primary": task.primary,
        "better": task.better,
        "chance": task.chance,
        "baselines": task.baselines(),
    }


def _attention(mixers: tuple[Mixer, ...]) -> dict[str, Any]:
    """Of what mixes tokens; where layers differ, of each in turn, under the name and text of all."""
    layers = [_mixer(mixer) for mixer in mixers]
    if len(layers) == 1:
        return layers[0]
    reach = max(mixer.reach for mixer in mixers)
    return {
        "name": "+".join(dict.fromkeys(layer["name"] for layer in layers)),
        "text": "+".join(layer["text"] for layer in layers),
        "reach": reach if math.isfinite(reach) else "all",
        "layers": layers,
    }


def _mixer(mixer: Mixer) -> dict[str, Any]:
    fields = {field.name: getattr(mixer, field.name) for field in dataclasses.fields(mixer)}  # pyright: ignore[reportArgumentType]
    defaults = registry.hyperparameters(mixer.name)
    own = ", ".join(f"{name}={value}" for name, value in fields.items() if value != defaults[name])
    return {
        "name": mixer.name,
        "text": f"{mixer.name}({own})" if own else mixer.name,
        "hyperparameters": fields,
        "implementation": fields.get("implementation", "xla"),
        "reach": mixer.reach if math.isfinite(mixer.reach) else "all",
        "capabilities": dataclasses.asdict(mixer.capabilities),
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
