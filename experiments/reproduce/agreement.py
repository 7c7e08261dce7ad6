"""Whether a record that was made again agrees with the first one."""

import dataclasses

from experiments import provenance
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
    interval, or within ROUNDING where it has none. Raises ValueError for a record of another config.
    """
    if first["identity"] != again["identity"]:
        names = [f"{record['name']}-{record['identity']}" for record in (again, first)]
        raise ValueError(f"{names[0]} is of another config than {names[1]}")
    differing = provenance.differences(first["provenance"], again["provenance"])
    lines = [f"{name}: was {one}, is {other}" for name, (one, other) in differing.items()]
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


def _seed(first: Record, again: Record, seed: str, wide: float | None) -> tuple[str, str]:
    one, other, metric = first["seeds"][seed], again["seeds"][seed], first["task"]["primary"]
    if one["outcome"] != other["outcome"]:
        return APART, f"seed {seed}: was {one['outcome']}, is {other['outcome']}"
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
