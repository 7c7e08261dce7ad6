"""Which records may stand in one table, and what the table may claim."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from scipy import stats

from experiments import provenance, records
from experiments.config.checks import LAYERS, MIXERS
from experiments.config.settings import LATER, incidental
from experiments.fields import flat
from experiments.records import Record

CONFIDENCE = 0.95
LEAST_PAIRS = 8  # seeds in common below which "A beats B" is not tested
NOT_CITABLE = "not citable"
NOT_TRAINED = "not trained"
EQUAL = "equal in every seed"
ROUNDING = 1e-4  # of a score, or of 1 if that is more: what the order of additions alone can change


def refusals(one: Record, other: Record, timed: bool = True) -> list[str]:
    """Why another record cannot stand beside this one, a phrase for each reason; [] if it can.

    It can if task (its data too), budget (steps, or FLOPs where those were given), machine, device and
    versions are the same. Where nothing that is `timed` is shown, the processor may be another.
    """
    if other.get("schema") != records.SCHEMA:
        return [f"its schema is {other.get('schema')}, not {records.SCHEMA}"]
    if one["task"]["name"] != other["task"]["name"]:
        return [f"its task is {other['task']['name']}"]
    left, right = _requirements(one), _requirements(other)
    names = sorted(left.keys() | right.keys())
    pairs = {name: (left.get(name), right.get(name)) for name in names if left.get(name) != right.get(name)}
    pairs |= provenance.differences(one["provenance"], other["provenance"])
    for name in (provenance.CODE, *(() if timed else provenance.PROCESSOR)):
        pairs.pop(name, None)
    return [f"{name} {theirs}, not {ours}" for name, (ours, theirs) in pairs.items()]


def labels(one: Record, other: Record) -> list[str]:
    """What differs between two comparable records and belongs beside the number: settings and code.

    A phrase for each, as the other record has it: "model.num_heads=4", "other code".
    """
    theirs = asked_for(other)
    phrases = [
        f"{name}={theirs[name]}" if name in theirs else f"no {name}" for name in _other_settings(one, other)
    ]
    together = _most_at_once(other)
    if together != _most_at_once(one):
        phrases.append(f"{together} seeds at once" if together > 1 else "seeds one by one")
    return phrases + ["other code"] * other_code(one, other) + remarks(other)


def beside(fields: dict[str, Any]) -> set[str]:
    """Those of a config's fields that need not be the same for its numbers to be of the same experiment."""
    variants = (field for field in fields if field.startswith(("attention.", f"{MIXERS}.")))
    derived = [] if fields["train.flops"] is None else ["train.steps"]
    return {*incidental(fields), "task.data_dir", LAYERS, *variants, *derived}


def asked_for(record: Record) -> dict[str, Any]:
    """All fields of a record's config, those too that came after it."""
    return LATER | flat(record["config"])


def _other_settings(one: Record, other: Record) -> list[str]:
    """Fields of the config that may change a number and differ, beside attention and where its data lie."""
    ours, theirs = asked_for(one), asked_for(other)
    names = sorted((ours.keys() | theirs.keys()) - beside(ours | theirs))
    return [name for name in names if ours.get(name) != theirs.get(name)]


def other_code(one: Record, other: Record) -> bool:
    return provenance.CODE in provenance.differences(one["provenance"], other["provenance"])


def remarks(record: Record) -> list[str]:
    """What belongs beside a record's number whatever it is compared with."""
    entries = [entry for entry in record["seeds"].values() if "step" in entry]
    taken = sorted({entry["step"] for entry in entries if entry["outcome"] == records.FINISHED})
    asked = asked_for(record)
    early = [step for step in taken if step < asked["train.steps"]]
    paid = bool(asked["seeds"]) and asked["train.flops"] is not None
    phrases = [f"{asked['train.steps']:,} steps"] * paid
    phrases += [f"stopped at step {_range(taken)}"] if early else []
    if record.get("grid") and record["learning_rate"]:
        tried = [float(rate) for rate in record["grid"]]
        edge = ", the edge of its grid" if record["learning_rate"] in (min(tried), max(tried)) else ""
        phrases.append(f"learning rate {record['learning_rate']:g}{edge}")
    phrases += at_chance(record)
    if record["outcome"] != records.FINISHED:
        phrases.append(record["outcome"])
    return phrases + [NOT_CITABLE] * bool(record["not_citable"])


def result(record: Record) -> str:
    """What stands in the place of a score that there is not."""
    only_measured = record["outcome"] == records.FINISHED and not record["config"]["seeds"]
    return NOT_TRAINED if only_measured else record["outcome"]


def at_chance(record: Record, length: int | None = None) -> list[str]:
    """A phrase if any seed is at chance, at the task's own length unless another is given, else none."""
    entries = [entry for entry in record["seeds"].values() if "step" in entry]
    if length is None:
        marks = [entry.get("at_chance", False) for entry in entries]
    else:
        marks = [entry.get("at_chance_at_length", {}).get(str(length), False) for entry in entries]
    if not any(marks):
        return []
    return ["at chance" if all(marks) else f"{sum(marks)} of {len(marks)} at chance"]


def _most_at_once(record: Record) -> int:
    return max(map(len, record["groups"]), default=1)


def _range(values: list[int]) -> str:
    return str(values[0]) if values[0] == values[-1] else f"{values[0]}-{values[-1]}"


def scores(record: Record, metric: str, length: int | None = None) -> dict[str, float]:
    """Test value by seed, of the seeds that have one, at the task's own length unless another is given."""
    entries = record["seeds"].items()
    if length is None:
        found = {seed: entry.get("test", {}).get(metric) for seed, entry in entries}
    else:
        at_length = {seed: entry.get("test_at_length", {}).get(str(length), {}) for seed, entry in entries}
        found = {seed: values.get(metric) for seed, values in at_length.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean and half the width of its 95% Student-t interval (None below two values), with n."""
    count = len(values)
    if count == 0:
        return {"mean": None, "half_width": None, "n": 0}
    mean = math.fsum(values) / count
    if count == 1:
        return {"mean": mean, "half_width": None, "n": 1}
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    half_width = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * error
    return {"mean": mean, "half_width": half_width, "n": count}


def paired(ours: dict[str, float], theirs: dict[str, float]) -> float | None:
    """Two-sided p of a paired t-test over the seeds in common; 1 where the means are equal but for ROUNDING.

    None, not tested, if they are fewer than 8 or if all pairs differ alike (t is not defined).
    """
    common = sorted(ours.keys() & theirs.keys())
    differences = [ours[seed] - theirs[seed] for seed in common]
    if len(common) < LEAST_PAIRS or len(set(differences)) == 1:
        return None
    one, other = (math.fsum(side[seed] for seed in common) / len(common) for side in (ours, theirs))
    if math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING):
        return 1.0
    result: Any = stats.ttest_1samp(differences, 0.0)
    return float(result.pvalue)


def claims(found: Sequence[Record]) -> list[dict[str, Any]]:
    """What may be said of every pair of records: {"better", "worse", "by", "p", "untested", "doubts"}.

    "better" is the record with the better mean over the seeds in common, "by" the `interval` of the
    differences between the two, seed by seed, "p" that of `paired`, Holm-corrected over all pairs that were
    tested, "untested" the reason why this one was not, or None, and "doubts" what must be told with a claim.
    """
    made = [_claim(one, other) for one, other in itertools.combinations(found, 2)]
    corrected = holm([claim["p"] for claim in made])
    return [claim | {"p": p} for claim, p in zip(made, corrected, strict=True)]


def _claim(one: Record, other: Record) -> dict[str, Any]:
    metric, sign = one["task"]["primary"], -1 if one["task"]["better"] == "lower" else 1
    ours, theirs = scores(one, metric), scores(other, metric)
    by = interval([sign * (ours[seed] - theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())])
    untested = _untested(one, other)
    p = None if untested else paired(ours, theirs)
    if p is None and not untested:
        untested = "all seeds differ alike" if by["mean"] else EQUAL
    ahead = by["mean"] or 0.0
    better, worse = (one, other) if ahead >= 0 else (other, one)
    doubtful = {
        "other code": other_code(one, other),
        NOT_CITABLE: one["not_citable"] or other["not_citable"],
    }
    return {
        "better": better,
        "worse": worse,
        "by": by | {"mean": abs(ahead)},
        "p": p,
        "untested": untested,
        "doubts": [doubt for doubt, is_so in doubtful.items() if is_so],
    }


def _untested(one: Record, other: Record) -> str | None:
    """Why the difference between two records cannot be tested fairly, None if it can."""
    asked = {*map(str, one["config"]["seeds"])} & {*map(str, other["config"]["seeds"])}
    # Those that failed are no random ones: a mean without them is too good.
    if asked & {*failures(one), *failures(other)}:
        return "failed seeds"
    if not (one["config"]["seeds"] and other["config"]["seeds"]):
        return NOT_TRAINED
    metric = one["task"]["primary"]
    if len(scores(one, metric).keys() & scores(other, metric).keys()) < LEAST_PAIRS:
        return f"a paired t-test wants {LEAST_PAIRS} seeds in common"
    # What other settings or another choice of learning rates do is not the attention's doing.
    names = _other_settings(one, other)
    return f"they differ in {', '.join(names)}" if names else None


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for being several (Holm 1979); None stays None and does not count."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        corrected[index] = highest
    return corrected


def failures(record: Record) -> list[str]:
    """Seeds that ended without a result: not those that can be continued."""
    fine = (records.FINISHED, *records.UNDECIDED)
    return [seed for seed, entry in record["seeds"].items() if entry["outcome"] not in fine]


def table(this: Record, others: Sequence[Record]) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of this record and of those that may stand beside it, best first and those with failed seeds after
    them; a line for each reason for which others may not.

    A row is {"record", "this", "score" (an `interval`), "failed", "labels", "claim"}: of the `claims` on
    all rows the one about this record and the row's, None for this record.
    """
    kept, refused = [], {}
    for other in others:
        if reasons := "; ".join(refusals(this, other)):
            refused.setdefault(reasons, []).append(f"{other.get('name')}-{other.get('identity')}")
        else:
            kept.append(other)
    own = claims([this, *kept])[: len(kept)]  # pairs with this record come first, in the others' order
    lines = [f"{', '.join(names)}: {reasons}" for reasons, names in refused.items()]
    return ranked([this, *kept], [None, *own]), lines


def ranked(group: Sequence[Record], made: Sequence[dict[str, Any] | None] = ()) -> list[dict[str, Any]]:
    """Rows as `table` has them, of records that may stand in one: `made` is the claim of each, if any.

    What is said of a record is seen from the first one.
    """
    this, metric = group[0], group[0]["task"]["primary"]
    pairs = zip(group, made or [None] * len(group), strict=True)
    return _ranked([_row(this, record, metric, claim) for record, claim in pairs], this["task"])


def _row(this: Record, record: Record, metric: str, claim: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "record": record,
        "this": record is this,
        "score": interval(list(scores(record, metric).values())),
        "failed": len(failures(record)),
        "labels": remarks(record) if record is this else labels(this, record),
        "claim": claim,
    }


def _ranked(rows: list[dict[str, Any]], task: dict[str, Any]) -> list[dict[str, Any]]:
    """Best first, after them rows with failed seeds, last those without a score.

    By the mean over the seeds that all rows without failures share, since other seeds may be easier ones; by
    a row's own mean where it has none of these.
    """
    values = {id(row): scores(row["record"], task["primary"]) for row in rows}
    whole = [set(values[id(row)]) for row in rows if values[id(row)] and not row["failed"]]
    shared = set.intersection(*whole) if whole else set()

    def rank(row: dict[str, Any]) -> tuple[bool, bool, float]:
        own = values[id(row)]
        mean = interval([own[seed] for seed in sorted(own.keys() & shared or own)])["mean"] or 0.0
        return not own, row["failed"] > 0, mean if task["better"] == "lower" else -mean

    return sorted(rows, key=rank)


def _budget(record: Record) -> str:
    asked = asked_for(record)
    flops = asked["train.flops"]
    return f"{asked['train.steps']} steps" if flops is None else f"{float(flops)!r} FLOPs"


def _requirements(record: Record) -> dict[str, Any]:
    fields = record["config"]["task"].items()
    return {
        **{f"task.{name}": value for name, value in fields if name not in ("name", "data_dir")},
        "version of the task": record["task"]["version"],
        "data": record["task"]["sha256"][:12],
        "budget": _budget(record),
        "batch size": record["config"]["train"]["batch_size"],
    }
