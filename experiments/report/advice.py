"""Which variant for which length and memory, in words made from the numbers, and how sure that is."""

import collections
import dataclasses

from experiments.records import Record
from experiments.report import compare, tables
from experiments.report.verdict import joined, of_task

GIB = 2**30
BUDGETS = (2, 4, 8, 16, 40, 80)  # GiB of a device
USUAL_BUDGET, USUAL_LENGTH = 8, 16384  # what a reader is shown first
BASELINE = "full"
HEADS = ["attention", "memory planned", "training step", "times the fastest"]
# Hyperparameters that many variants have, and that say nothing of what one is.
COMMON = {"scale", "temperature", "softcap", "dropout_rate", "query_block", "key_block", "hash_seed"}


@dataclasses.dataclass(frozen=True)
class Advice:
    """For one length and one memory: what can be trained, which of that to take, and how sure that is."""

    length: int
    budget: int  # GiB
    take: list[str]  # sentences, the last one on quality
    rows: list[list[str]]  # of what fits, under HEADS
    quality: list[str]  # of each task, the scores of what fits
    sure: list[str]


def advices(group: list[Record], tasks: list[list[Record]]) -> list[Advice]:
    """For each length that the `by_length` group has, and each memory."""
    lengths = sorted({record["task"]["length"] for record in group})
    return [_advice(group, tasks, length, budget) for length in lengths for budget in BUDGETS]


def usual(found: list[Advice]) -> Advice:
    """What a reader is shown first: the usual memory at the usual length, or the nearest below."""
    fitting = [a for a in found if a.length <= USUAL_LENGTH and a.budget == USUAL_BUDGET]
    return max(fitting, key=lambda advice: advice.length) if fitting else found[0]


def _advice(group: list[Record], tasks: list[list[Record]], length: int, budget: int) -> Advice:
    rows = {r["attention"]["text"]: r for r in group if r["task"]["length"] == length}
    planned = {name: size for name, record in rows.items() if (size := _planned(record)) is not None}
    fits = sorted(name for name, size in planned.items() if size <= budget * GIB)
    fits.sort(key=lambda name: tables.step_seconds(rows[name]) or 0.0)
    compared = _compared({rows[text]["attention"]["name"] for text in fits}, tasks)
    take = [_fitting(fits, planned, length, budget), *_fastest(fits, rows)]
    take.append(_quality(compared, tasks, length))
    unknown = sorted({r["attention"]["text"] for r in group} - planned.keys())
    sure = [*_sure(group[0]), *([f"Not measured at this length: {_names(unknown)}."] if unknown else [])]
    quality = [of_task(own, whole) for own, whole in compared]
    return Advice(length, budget, take, [_row(rows[name], rows[fits[0]]) for name in fits], quality, sure)


def _planned(record: Record) -> int | None:
    programs = (record["memory"].get(name, {}).get("total") for name in ("training_step", "forward"))
    return max((size for size in programs if size is not None), default=None)


def _names(names: list[str]) -> str:
    return joined([f"`{name}`" for name in names])


def _fitting(fits: list[str], planned: dict[str, int], length: int, budget: int) -> str:
    where = f"{length:,} tokens in {budget} GiB"
    sized = [f"`{name}` ({tables.in_bytes(planned[name])})" for name in planned if name not in fits]
    if not planned:
        return f"At {where}: nothing was measured."
    if not fits:
        return f"At {where} nothing that was measured can be trained: {joined(sized)}."
    if sized:
        return f"At {where} {_names(fits)} can be trained; {joined(sized)} cannot."
    return f"At {where} memory decides nothing: all that were measured can be trained, {_names(fits)}."


def _fastest(fits: list[str], rows: dict[str, Record]) -> list[str]:
    known = [name for name in fits if tables.step_seconds(rows[name])]
    if len(known) < 2:
        return []
    first, other = known[0], BASELINE if BASELINE in known[1:] else known[1]
    ratio = (tables.step_seconds(rows[other]) or 0.0) / (tables.step_seconds(rows[first]) or 1.0)
    return [f"Fastest is `{first}`: {ratio:.2g} times as fast as `{other}`."]


def _row(record: Record, fastest: Record) -> list[str]:
    hyperparameters = record["attention"].get("hyperparameters", {}).items()
    own = ", ".join(f"{name}={x}" for name, x in hyperparameters if name not in COMMON and x is not None)
    name = record["attention"]["name"]
    seconds, least = tables.step_seconds(record), tables.step_seconds(fastest)
    spread = record["speed"].get("training_step", {})
    return [
        f"{name}({own})" if own else name,
        tables.in_bytes(_planned(record)),
        f"{seconds:.3g} s ({spread['low']:.3g}-{spread['high']:.3g})" if seconds else "-",
        f"{seconds / least:.2g}" if seconds and least else "-",
    ]


def _compared(names: set[str], tasks: list[list[Record]]) -> list[tuple[list[Record], list[Record]]]:
    """Of each table with scores of several of these variants: their records, and the whole table.

    By variant: elsewhere its hyperparameters may differ.
    """
    found = [([r for r in group if r["attention"]["name"] in names], group) for group in tasks]
    return [(own, group) for own, group in found if len({record["attention"]["name"] for record in own}) > 1]


def _quality(
    compared: list[tuple[list[Record], list[Record]]], tasks: list[list[Record]], length: int
) -> str:
    if not tasks:
        return "Quality was not measured."
    at = sorted({group[0]["task"]["length"] for group in tasks})
    lengths = joined([f"{n:,}" for n in at])
    head = f"Quality was measured at {lengths} tokens" + ("" if length in at else f", not at {length:,}")
    best = [compare.ranked(own)[0] for own, _ in compared]
    first = [row["record"]["attention"]["name"] for row in best if row["score"]["mean"] is not None]
    wins = collections.Counter(first).most_common()
    told = ", ".join(f"`{name}` {count}" for name, count in wins)
    return f"{head}. The best mean, by number of tasks: {told}." if told else f"{head}."


def _sure(record: Record) -> list[str]:
    sequences, device = record["config"]["train"]["batch_size"], record["provenance"]["device"]
    return [
        "Memory is what the compiler plans for a training step (arguments, outputs, temporaries) of this "
        "model: "
        f"{record['parameters']['total']:,} parameters, {sequences} sequence{'s' * (sequences > 1)} a step, "
        f"on the {device['platform'].upper()} here. It is exact for that and for nothing else: "
        "`--mode=plan` tells it for another model or device.",
        "Time is the median of warm steps on one machine, in brackets its quartiles: trust the ratios, and "
        "on this kind of device only.",
        "± is half a 95% Student-t interval over seeds. One seed alone shows nothing of how another would "
        "end.",
    ]
