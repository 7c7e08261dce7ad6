"""The records of one task as Markdown: their table, what to hold it against, and what may be claimed."""

import collections
from typing import Any

from experiments import provenance
from experiments.records import Record
from experiments.report import compare, tables


def task_section(group: list[Record]) -> str:
    """Heading, table, baselines and claims of a task's records. Raises ValueError if they do not compare."""
    rows, refused = compare.table(group[0], group[1:])
    if refused:
        raise ValueError(f"records that do not compare: {'; '.join(refused)}")
    task, metric = group[0]["task"], group[0]["task"]["primary"]
    at = [tables.at_lengths(row["record"]) for row in rows]
    lengths = [column for column in at[0] if any(cells[column] != "-" for cells in at)]
    heads = ["attention", f"test {metric}", *lengths, *tables.COSTS, "remarks"]
    simple = ", ".join(f"{name} {value:.4g}" for name, value in tables.simple_scores(task).items())
    trained = [record for record in group if record["config"]["seeds"]]
    below = (
        f"For comparison, {metric}: {simple}.",
        rates_text(trained),
        claims_text(trained),
        commits_text(group),
    )
    return "\n\n".join(
        [
            f"**`{task['name']}`**, length {task['length']}, {tables.budget(group[0])}, "
            f"{origin_text(group[0]['provenance'])}:",
            tables.markdown(heads, [_result(row, lengths) for row in rows]),
            " ".join(filter(None, below)),
        ]
    )


def commits_text(group: list[Record]) -> str:
    """Of which code the records are."""
    made = sorted({provenance.commit(record["provenance"]) for record in group})
    return f"Code: {', '.join(made)}."


def rates_text(group: list[Record]) -> str:
    """Which learning rates the records had, and whether they were chosen on validation."""
    had: dict[str, list[str]] = {}
    for record in group:
        tried = [f"{rate:g}" for rate in record["config"]["optimizer"]["learning_rate_grid"]]
        own = f"{record['learning_rate']:g}, not tuned" if not tried else f"tuned over {', '.join(tried)}"
        had.setdefault(own, []).append(_name(record, group))
    if len(had) <= 1:
        return "".join(f"Learning rate of all: {own}." for own in had)
    return "Learning rates: " + "; ".join(f"{own} ({', '.join(names)})" for own, names in had.items()) + "."


def claims_text(group: list[Record]) -> str:
    """Which differences between the records were shown, which were not, and which were not tested."""
    found = compare.claims(group)
    untested = collections.Counter(claim["untested"] for claim in found if claim["untested"])
    tested = len(found) - untested.total()
    shown = [c for c in found if not c["untested"] and c["p"] < 1 - compare.CONFIDENCE]
    sentences = []
    if tested:
        sentences.append(
            f"Better by a paired t-test over seeds, Holm-corrected over {tested} pairs: "
            f"{'; '.join(_claim(claim, group) for claim in shown) or 'none'}."
        )
    if tested > len(shown):
        sentences.append(f"For {tested - len(shown)} other pairs no difference was shown.")
    if untested:
        reasons = (f"{reason} ({count} of {len(found)} pairs)" for reason, count in untested.items())
        sentences.append(f"{'Not' if tested else 'No difference was'} tested: {'; '.join(reasons)}.")
    return " ".join(sentences)


def _claim(claim: dict[str, Any], group: list[Record]) -> str:
    better, worse, by = _name(claim["better"], group), _name(claim["worse"], group), claim["by"]
    told = "; ".join([f"n = {by['n']}, p = {claim['p']:.1g}", *claim["doubts"]])
    return f"{better} over {worse} by {by['mean']:.2g} ± {by['half_width']:.1g} ({told})"


def _name(record: Record, group: list[Record]) -> str:
    """Its attention, or its run where others of the group have the same."""
    text = record["attention"]["text"]
    alone = sum(other["attention"]["text"] == text for other in group) == 1
    return f"`{text}`" if alone else f"`{record['name']}-{record['identity']}`"


def _result(row: dict[str, Any], lengths: list[str]) -> list[str]:
    record = row["record"]
    cells = tables.at_lengths(record) | tables.costs(record)
    return [
        f"`{record['attention']['text']}`",
        tables.score(row["score"], row["failed"], compare.result(record)),
        *(cells[column] for column in (*lengths, *tables.COSTS)),
        "; ".join(row["labels"]),
    ]


def origin_text(origin: dict[str, Any]) -> str:
    """Machine and versions in a phrase."""
    machine, versions = origin["machine"], origin["packages"]
    processor = f"{machine['processor']} with {machine['usable_cores']} cores"
    return f"{processor}, jax {versions['jax']}, flax {versions['flax']}"
