"""The parts of README.md that are made from the code and from results/.

python -m experiments.readme           # rewrite them, and the picture
python -m experiments.readme --check   # exit 1 if they are out of step
"""

import argparse
import collections
import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import attention
from experiments import compare, figures, files, records, tables
from experiments.records import Record

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "results"
PICTURE = "docs/images/results.png"
HEADS = {"value_width": "V != H", "cross_attention": "cross"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if README.md is out of step"
    )
    check = parser.parse_args().check
    old = README.read_text(encoding="utf-8")
    new = filled(old)
    if check:
        print(
            "README.md is in step" if old == new else "README.md is out of step: python -m experiments.readme"
        )
        return int(old != new)
    if PICTURE in new:
        figures.results(RESULTS, ROOT / PICTURE)
    files.write(README, new)
    return 0


def filled(text: str) -> str:
    """The text with every block between <!-- name --> and <!-- /name --> made anew."""
    for name, content in {"results": results_block(), "capabilities": capability_table()}.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"README.md has no block <!-- {name} --> ... <!-- /{name} -->")
        text = pattern.sub(lambda match, content=content: f"{match[1]}\n{content}\n\n{match[2]}", text)
    return text


def capability_table() -> str:
    """A row for each registered variant, a column for each capability."""
    fields = [field.name for field in dataclasses.fields(attention.Capabilities)]
    rows = [
        [f"`{name}`", *(_cell(getattr(capabilities, field)) for field in fields)]
        for name, capabilities in attention.capabilities().items()
    ]
    return tables.markdown(["", *(HEADS.get(name, name.replace("_", " ")) for name in fields)], rows)


def results_block() -> str:
    """A table for each task, from the records in results/, and the picture."""
    found, complaints = records.find(RESULTS)
    if complaints:
        raise ValueError("; ".join(complaints))
    tasks: dict[str, list[Record]] = {}
    for _, record in found:
        tasks.setdefault(record["task"]["name"], []).append(record)
    sections = [task_section(group) for _, group in sorted(tasks.items())]
    if not sections:
        return "No run is in results/ yet."
    return "\n\n".join([*sections, f"![Learning curves, and time by length]({PICTURE})"])


def task_section(group: list[Record]) -> str:
    """Heading, table, baselines and claims of a task's records. Raises ValueError if they do not compare."""
    rows, refused = compare.table(group[0], group[1:])
    if refused:
        raise ValueError(f"results/ holds records that do not compare: {'; '.join(refused)}")
    task, metric = group[0]["task"], group[0]["task"]["primary"]
    train = group[0]["config"]["train"]
    at = [tables.at_lengths(row["record"]) for row in rows]
    lengths = [column for column in at[0] if any(cells[column] != "-" for cells in at)]
    heads = ["attention", f"test {metric}", *lengths, *tables.COSTS, "remarks"]
    simple = ", ".join(f"{name} {value:.4g}" for name, value in tables.simple_scores(task).items())
    below = (f"For comparison, {metric}: {simple}.", rates_text(group), claims_text(group))
    return "\n\n".join(
        [
            f"**`{task['name']}`**, length {task['length']}, at most {train['steps']} steps of "
            f"{train['batch_size']} sequences, {_origin(group[0]['provenance'])}:",
            tables.markdown(heads, [_result(row, lengths) for row in rows]),
            " ".join(filter(None, below)),
        ]
    )


def rates_text(group: list[Record]) -> str:
    """Which learning rates the records had, and whether they were chosen on validation."""
    had: dict[str, list[str]] = {}
    for record in group:
        tried = [f"{rate:g}" for rate in record["config"]["optimizer"]["learning_rate_grid"]]
        own = f"{record['learning_rate']:g}, not tuned" if not tried else f"tuned over {', '.join(tried)}"
        had.setdefault(own, []).append(_name(record, group))
    if len(had) == 1:
        return f"Learning rate of all: {next(iter(had))}."
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
        tables.score(row["score"], row["failed"], record["outcome"]),
        *(cells[column] for column in (*lengths, *tables.COSTS)),
        "; ".join(row["labels"]),
    ]


def _origin(origin: dict[str, Any]) -> str:
    machine, versions = origin["machine"], origin["packages"]
    processor = f"{machine['processor']} with {machine['usable_cores']} cores"
    return f"{processor}, jax {versions['jax']}, flax {versions['flax']}"


def _cell(value: bool | str) -> str:
    return value if isinstance(value, str) else "yes" if value else "-"


if __name__ == "__main__":
    sys.exit(main())
