"""Which variant for which budget, in words made from the numbers, and how sure that is."""

import collections
import dataclasses

from experiments.records import Record
from experiments.report import compare, digits, tables
from experiments.report.best import MOST, best, pairs

GIB = 2**30
BUDGETS = (2, 4, 8, 16, 40, 80)  # GiB of a device
USUAL_BUDGET, USUAL_LENGTH = 8, 16384  # what a reader is shown first


@dataclasses.dataclass(frozen=True)
class Advice:
    """For one length and one budget: what fits, which of that to take, and how sure that is."""

    length: int
    budget: int  # GiB
    take: list[str]  # sentences
    quality: list[str]  # of each task, which of what fits
    sure: list[str]


def of_task(group: list[Record], family: list[Record] | None = None) -> str:
    """What may be said of records of one task, in one or two sentences; `family` is their whole table."""
    family = group if family is None else family
    rows = [row for row in compare.ranked(group) if row["score"]["mean"] is not None]
    task = group[0]["task"]
    what = f"On `{task['name']}` (length {task['length']:,})"
    if not rows:
        return f"{what} no run has a test score."
    ranked = [row["record"] for row in rows]
    first, score = ranked[0], rows[0]["score"]
    number = f"{digits.text(score)} {task['primary'].replace('_', ' ')}, {_seeds(score['n'])}"
    ahead = best(ranked, family)
    if not ahead:
        head = f"{what} `{first['attention']['text']}` has the best mean ({number})."
        return " ".join([head, *_against_others(first, ranked[1:], family)])
    names = _and([f"`{record['attention']['text']}`" for record in ahead])
    others = "every other run" if len(ranked) == len(family) else f"the {len(ranked) - len(ahead)} others"
    verb = f"{'is' if len(ahead) == 1 else 'are'} better than {others}"
    level = "" if len(ahead) == 1 else ", and not told apart"
    return (
        f"{what} {names} {verb} by paired t-tests, Holm-corrected{level} "
        f"(`{first['attention']['text']}`: {number})."
    )


def _against_others(first: Record, others: list[Record], family: list[Record]) -> list[str]:
    """Sentences on what the first one was shown to be better than, and on what it was not."""
    if not others or len(family) > MOST:
        return []
    made = pairs(family)
    shown, rest = [], collections.defaultdict(list)
    for other in others:
        name, claim = f"`{other['attention']['text']}`", made[frozenset((id(first), id(other)))]
        if claim["untested"]:
            rest[f"not tested: {claim['untested']}"].append(name)
        elif claim["better"] is first and claim["p"] < 1 - compare.CONFIDENCE:
            shown.append(name)
        else:
            rest["tested, and no difference shown"].append(name)
    tests = "paired t-tests, Holm-corrected"
    sentences = [f"It was shown to be better than {_and(shown)} ({tests})."] if shown else []
    told = "; ".join(f"{_and(names)} ({reason})" for reason, names in rest.items())
    return [*sentences, f"Not shown to be better than {told}."] if rest else sentences


def advices(group: list[Record], tasks: list[list[Record]]) -> list[Advice]:
    """For each length that the `by_length` group has, and each budget."""
    lengths = sorted({record["task"]["length"] for record in group})
    return [_advice(group, tasks, length, budget) for length in lengths for budget in BUDGETS]


def usual(found: list[Advice]) -> Advice:
    """What a reader is shown first: the usual budget at the usual length, or the nearest below."""
    fitting = [a for a in found if a.length <= USUAL_LENGTH and a.budget == USUAL_BUDGET]
    return max(fitting, key=lambda advice: advice.length) if fitting else found[0]


def _advice(group: list[Record], tasks: list[list[Record]], length: int, budget: int) -> Advice:
    rows = {r["attention"]["text"]: r for r in group if r["task"]["length"] == length}
    planned = {name: _planned(record) for name, record in rows.items()}
    fits = [name for name, size in planned.items() if size is not None and size <= budget * GIB]
    above = [name for name, size in planned.items() if size is not None and size > budget * GIB]
    unknown = sorted({r["attention"]["text"] for r in group} - {*fits, *above})
    take = [f"At {length:,} tokens in {budget} GiB {_fitting(fits, planned)}."]
    take += [_fastest(fits, rows)] if fits else []
    if above:
        take.append(f"What does not fit: {_and([_sized(name, planned[name]) for name in above])}.")
    sequences = group[0]["config"]["train"]["batch_size"]
    sure = [
        "Memory is what the compiler plans for a training step of this model "
        f"({sequences} sequence{'s' * (sequences > 1)} a step, "
        f"{group[0]['provenance']['device']['platform'].upper()}): exact for it, and no other.",
        "Time is of one machine: trust the ratios.",
        _at_other_lengths(tasks, length),
    ]
    sure += [f"Not measured at this length: {_and([f'`{name}`' for name in unknown])}."] if unknown else []
    return Advice(length, budget, list(filter(None, take)), _quality(fits, tasks), list(filter(None, sure)))


def _planned(record: Record) -> int | None:
    programs = (record["memory"].get(name, {}).get("total") for name in ("training_step", "forward"))
    return max((size for size in programs if size is not None), default=None)


def _fitting(names: list[str], planned: dict[str, int | None]) -> str:
    if not names:
        return "nothing that was measured trains"
    return (
        f"{_and([_sized(name, planned[name]) for name in names])} {'train' if len(names) > 1 else 'trains'}"
    )


def _sized(name: str, size: int | None) -> str:
    return f"`{name}` ({tables.in_bytes(size)})"


def _quality(fits: list[str], tasks: list[list[Record]]) -> list[str]:
    """Which of those that fit has the best scores, by variant: elsewhere its hyperparameters may differ."""
    names = {text.partition("(")[0] for text in fits}
    told = []
    for group in tasks:
        own = [record for record in group if record["attention"]["name"] in names]
        if len({record["attention"]["name"] for record in own}) > 1:
            told.append(of_task(own, group))
    return told


def _fastest(fits: list[str], rows: dict[str, Record]) -> str:
    times = {name: rows[name]["speed"].get("training_step", {}).get("median") for name in fits}
    known = {name: seconds for name, seconds in times.items() if seconds}
    if len(known) < 2:
        return ""
    first, second, *_ = sorted(known, key=lambda name: known[name])
    ratio = known[second] / known[first]
    return (
        f"If time decides: `{first}`, {known[first]:.3g} s a step, {ratio:.2g} times as fast as `{second}`, "
        "the next."
    )


def _at_other_lengths(tasks: list[list[Record]], length: int) -> str:
    at = sorted({group[0]["task"]["length"] for group in tasks} - {length})
    if not tasks:
        return "Quality was not measured."
    own = "" if any(group[0]["task"]["length"] == length for group in tasks) else f", not at {length:,}"
    return f"Quality was measured at length {_and([f'{n:,}' for n in at] or [f'{length:,}'])}{own}."


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"n = {count}"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
