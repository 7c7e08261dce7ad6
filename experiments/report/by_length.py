"""Time and memory by length, from records that differ in attention and length alone."""

import json
from collections.abc import Callable

from experiments import provenance
from experiments.records import Record
from experiments.report import compare, growth, sections, tables

BASELINE = "full"
FEWEST = 3  # lengths that an exponent is fitted to
NOTE = (
    f"Grows as: fitted to the longer half of a variant's lengths, at least {FEWEST}; n^1 is linear. "
    "It is of the whole model, whose other parts are linear; the claim is of attention alone. "
    "Time: median of a warm call. Temporaries: what the compiler plans beside arguments and outputs, also "
    "where that did not fit and nothing was run."
)
Values = dict[int, float]
Rows = dict[str, dict[int, Record]]  # by attention, and by length


def _time(program: str) -> Callable[[Record], float | None]:
    return lambda record: record["speed"].get(program, {}).get("median")


def _temporaries(program: str) -> Callable[[Record], float | None]:
    return lambda record: record["memory"].get(program, {}).get("temporaries")


def _in_milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.4g}" if seconds < 1 else f"{1000 * seconds:,.0f}"


# Its value in a record, how it is shown, and the capability that says how an attention's share of it grows.
QUANTITIES = {
    "forward, ms": (_time("forward"), _in_milliseconds, "time"),
    "training step, ms": (_time("training_step"), _in_milliseconds, "time"),
    "forward, temporaries": (_temporaries("forward"), tables.in_bytes, "memory"),
    "training step, temporaries": (_temporaries("training_step"), tables.in_bytes, "memory"),
}


def groups(found: list[Record]) -> list[list[Record]]:
    """Records that differ in attention and length alone, if an attention is there at several lengths."""
    together: list[list[Record]] = []
    for record in found:
        for group in together:
            if _key(group[0]) == _key(record) and not _elsewhere(group[0], record):
                group.append(record)
                break
        else:
            together.append([record])
    return [group for group in together if any(len(row) > 1 for row in _rows(group).values())]


def parts(group: list[Record]) -> list[tuple[list[str], list[list[str]]]]:
    """Tables of a group, each its heads and its rows: four quantities, and where each falls below full's."""
    rows = _rows(group)
    lengths = sorted({length for row in rows.values() for length in row})
    made = []
    for title, (value, shown, cost) in QUANTITIES.items():
        lines = []
        for name, row in rows.items():
            known = _values(row, value)
            cells = [_cell(row.get(length), known.get(length), shown) for length in lengths]
            lines.append([f"`{name}`", *cells, grows(known), _claimed(row, cost)])
        made.append(([title, *(f"{length:,}" for length in lengths), "grows as", "attention's claim"], lines))
    if BASELINE in rows and len(rows) > 1:
        made.append((["below `full` from length", *QUANTITIES], _crossovers(rows)))
    return made


def series(group: list[Record]) -> dict[str, dict[str, Values]]:
    """By quantity and attention, its values by length: seconds or bytes."""
    return {
        _unit(name): {text: _values(row, value) for text, row in _rows(group).items()}
        for name, (value, *_) in QUANTITIES.items()
    }


def _unit(name: str) -> str:
    return name.replace(", ms", ", seconds").replace(", temporaries", ", bytes of temporaries")


def title(group: list[Record]) -> str:
    """What the tables of a group are about."""
    config = group[0]["config"]
    return (
        f"**By length**: `{config['task']['name']}`, training steps of batch size "
        f"{config['train']['batch_size']}, forward passes of {config['eval']['batch_size']}, "
        f"{sections.origin_text(group[0]['provenance'])}:"
    )


def note(group: list[Record]) -> str:
    """How the tables of a group are read, and what its records lack."""
    counts = {
        "not citable": sum(bool(record["not_citable"]) for record in group),
        "by other code than the first": sum(compare.other_code(group[0], record) for record in group),
    }
    lacking = [f"{count} of {len(group)} cells are {what}" for what, count in counts.items() if count]
    return " ".join([NOTE, *(f"{each}." for each in lacking)])


def _crossovers(rows: Rows) -> list[list[str]]:
    lines = []
    for name, row in rows.items():
        if name != BASELINE:
            pairs = [(_values(row, v), _values(rows[BASELINE], v)) for v, *_ in QUANTITIES.values()]
            lines.append([f"`{name}`", *(growth.crossover(*pair) for pair in pairs)])
    return lines


def _key(record: Record) -> str:
    fields = compare.asked_for(record)
    kept = {field: fields[field] for field in fields.keys() - compare.beside(fields) - {"task.length"}}
    return json.dumps(kept, sort_keys=True)


def _elsewhere(one: Record, other: Record) -> bool:
    """Whether machine or versions differ."""
    differing = provenance.differences(one["provenance"], other["provenance"])
    return bool(differing.keys() - {provenance.CODE})


def _rows(group: list[Record]) -> Rows:
    rows: Rows = {}
    for record in group:
        rows.setdefault(record["attention"]["text"], {})[record["task"]["length"]] = record
    return rows


def _values(row: dict[int, Record], value: Callable[[Record], float | None]) -> Values:
    found = {length: value(row[length]) for length in sorted(row)}
    return {length: float(number) for length, number in found.items() if number}


def _cell(record: Record | None, value: float | None, shown: Callable[[float], str]) -> str:
    if record is None:
        return ""
    return compare.result(record) if value is None else shown(value)


def _claimed(row: dict[int, Record], cost: str) -> str:
    """What the capabilities of the attention say; "" for a recurrent layer, which has none."""
    capabilities = next(iter(row.values()))["attention"].get("capabilities") or {}
    return capabilities.get(cost, "")


def grows(known: Values) -> str:
    """The exponent fitted to the longer half of the lengths, in a phrase; "" if they are too few."""
    lengths = list(known)[-max(FEWEST, (len(known) + 1) // 2) :]
    slope = growth.exponent(lengths, [known[length] for length in lengths])
    return "" if slope is None else f"n^{slope:.2f} ({len(lengths)} points)"
