"""Whether a record that was made again agrees with the first one."""

import dataclasses
from typing import Any

from experiments import provenance, records
from experiments.records import Record
from experiments.report import compare

SAME, CLOSE, APART = "agrees bit for bit", "agrees", "does not agree"


@dataclasses.dataclass(frozen=True)
class Agreement:
    """`verdict` is one of SAME, CLOSE, APART; `lines` say why."""

    verdict: str
    lines: list[str]


def agreement(first: Record, again: Record) -> Agreement:
    """Seed by seed, of the seeds that both have.

    Bit for bit: the same parameters and test metrics. Else the scores must lie within the first record's 95%
    interval, or within ROUNDING where it has none. Seeds that ended without a result must have ended alike.
    Where none was asked for, what was counted and compiled must be the same: what was timed never is. Raises
    ValueError for a record of another config.
    """
    if first["identity"] != again["identity"]:
        names = [f"{record['name']}-{record['identity']}" for record in (again, first)]
        raise ValueError(f"{names[0]} is of another config than {names[1]}")
    differing = provenance.differences(first["provenance"], again["provenance"])
    lines = [f"{name}: was {one}, is {other}" for name, (one, other) in differing.items()]
    if not (first["config"]["seeds"] or first["seeds"]):
        verdict, own = _untrained(first, again)
        return Agreement(verdict, [*lines, *own])
    seeds = sorted(first["seeds"].keys() & again["seeds"].keys(), key=int)
    missing = sorted(first["seeds"].keys() - again["seeds"].keys(), key=int)
    lines += [f"seeds {', '.join(missing)} were not made again"] if missing else []
    if not seeds:
        return Agreement(APART, [*lines, "no seed was made again"])
    metric = first["task"]["primary"]
    wide = compare.interval(list(compare.scores(first, metric).values()))["half_width"]
    found = [_seed(first, again, seed, wide) for seed in seeds]
    worst = max((verdict for verdict, _ in found), key=(SAME, CLOSE, APART).index)
    return Agreement(worst, [*lines, *(line for _, line in found)])


def _untrained(first: Record, again: Record) -> tuple[str, list[str]]:
    """Of records that only measure: what does not depend on how fast a machine happened to be."""
    sides = [_counted(record) for record in (first, again)]
    names = sorted(sides[0].keys() | sides[1].keys())
    apart = [name for name in names if sides[0].get(name) != sides[1].get(name)]
    told = [
        f"{name}: was {sides[0].get(name, 'absent')}, is {sides[1].get(name, 'absent')}" for name in apart
    ]
    kind = "not all" if apart else "all"
    head = f"nothing was trained; outcome, parameters, FLOPs and bytes planned are {kind} the same"
    return APART if apart else CLOSE, [f"{head}; times are not compared", *told]


def _counted(record: Record) -> dict[str, Any]:
    planned = {name: record["memory"].get(name, {}) for name in ("training_step", "forward")}
    return {
        "outcome": record["outcome"],
        "parameters": record["parameters"]["total"],
        **{f"FLOPs, {name}": count for name, count in record["flops"].items()},
        **{f"bytes, {name}, {part}": n for name, parts in planned.items() for part, n in parts.items()},
    }


def _without_result(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, str]:
    """Of two seeds of one outcome, which is not that they finished."""
    if one["outcome"] in records.UNDECIDED:
        return APART, f"{one['outcome']} both times, so there is nothing to compare"
    before, now = (_ending(entry) for entry in (one, other))
    if before == now:
        return SAME, f"{one['outcome']} both times, {before}"
    # An allocator's words hold its numbers.
    full = one["outcome"] in (records.OUT_OF_MEMORY, records.OUT_OF_MEMORY_COMPILED)
    alike = full and one.get("step") == other.get("step")
    return CLOSE if alike else APART, f"{one['outcome']} both times: was {before}, is {now}"


def _ending(entry: dict[str, Any]) -> str:
    step = f"at step {entry['step']}" if "step" in entry else "at no step"
    return f"{step} ({entry.get('reason') or 'no reason is given'})"


def _seed(first: Record, again: Record, seed: str, wide: float | None) -> tuple[str, str]:
    one, other, metric = first["seeds"][seed], again["seeds"][seed], first["task"]["primary"]
    if one["outcome"] != other["outcome"]:
        return APART, f"seed {seed}: was {one['outcome']}, is {other['outcome']}"
    if one["outcome"] != records.FINISHED:
        verdict, told = _without_result(one, other)
        return verdict, f"seed {seed}: {told}"
    names = ("sha256", "test", "test_at_length", "validation")
    if all(one.get(name) == other.get(name) for name in names):
        return SAME, f"seed {seed}: the same parameters and scores, bit for bit"
    before, now = one.get("test", {}).get(metric), other.get("test", {}).get(metric)
    if before is None or now is None:
        return APART, f"seed {seed}: has no test score"
    allowed = wide or compare.ROUNDING * max(1.0, abs(before))
    verdict = CLOSE if abs(now - before) <= allowed else APART
    apart = f"{abs(now - before):.2g} apart, {allowed:.2g} allowed"
    return verdict, f"seed {seed}: {metric} was {before:.6g}, is {now:.6g} ({apart})"
