"""Records as comma-separated values: every number in full, nothing rounded, units in the heads."""

import csv
import io
from typing import Any

from experiments import provenance
from experiments.records import Record
from experiments.report import compare, tables

HEADS = (
    "run", "identity", "task", "task_version", "length", "attention", "metric", "mean", "half_width_95", "n",
    "failed", "chance", "outcome", "remarks", "learning_rate", "steps", "batch_size",
    "step_seconds_median", "step_seconds_low", "step_seconds_high", "tokens_per_second", "compile_seconds",
    "temporaries_bytes", "planned_bytes", "in_use_bytes", "flops_per_step", "parameters", "processor",
    "cores", "device", "jax", "commit", "citable",
)  # fmt: skip
SEED_HEADS = ("run", "identity", "seed", "outcome", "step", "length", "metric", "value")


def runs(found: list[Record]) -> str:
    """A line for each record."""
    return _written(HEADS, [_run(record) for record in found])


def seeds(found: list[Record]) -> str:
    """A line for each seed, test metric and length."""
    lines = []
    for record in found:
        for seed, entry in sorted(record["seeds"].items(), key=lambda item: int(item[0])):
            at = {str(record["task"]["length"]): entry.get("test", {}), **entry.get("test_at_length", {})}
            head = (record["name"], record["identity"], seed, entry["outcome"], entry.get("step"))
            scores = [(length, *each) for length, metrics in at.items() for each in metrics.items()]
            lines += [dict(zip(SEED_HEADS, (*head, *score), strict=True)) for score in scores]
    return _written(SEED_HEADS, lines)


def _run(record: Record) -> dict[str, Any]:
    task, origin, train = record["task"], record["provenance"], record["config"]["train"]
    step, planned = record["speed"].get("training_step", {}), record["memory"].get("training_step", {})
    seconds, tokens, compiling, temporaries, in_use, flops, parameters = tables.cost_numbers(record).values()
    score = compare.interval(list(compare.scores(record, task["primary"]).values()))
    values = (
        record["name"], record["identity"], task["name"], task["version"], task["length"],
        record["attention"]["text"], task["primary"], score["mean"], score["half_width"], score["n"],
        len(compare.failures(record)), (task["chance"] or {}).get(task["primary"]), record["outcome"],
        "; ".join(compare.remarks(record)), record["learning_rate"], train["steps"], train["batch_size"],
        seconds, step.get("low"), step.get("high"), tokens, compiling,
        temporaries, planned.get("total"), in_use, flops, parameters,
        origin["machine"]["processor"], origin["machine"]["usable_cores"], origin["device"]["kind"],
        origin["packages"].get("jax"), provenance.commit(origin), not record["not_citable"],
    )  # fmt: skip
    return dict(zip(HEADS, values, strict=True))


def _written(heads: tuple[str, ...], lines: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
