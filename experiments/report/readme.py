"""The parts of README.md that are made from the code and from results/.

python -m experiments.report.readme            # rewrite them, and the picture
python -m experiments.report.readme --check    # exit 1 if they are out of step
"""

import argparse
import dataclasses
import re
import sys

import attention
from experiments import files, provenance, records
from experiments.records import Record
from experiments.report import by_length, figures, sections, synthetic, tables

README = provenance.ROOT / "README.md"
RESULTS = provenance.ROOT / "results"
SCALING = RESULTS / "scaling"
SYNTHETIC = RESULTS / "synthetic"
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
            "README.md is in step"
            if old == new
            else "README.md is out of step: python -m experiments.report.readme"
        )
        return int(old != new)
    if PICTURE in new:
        figures.results(RESULTS, provenance.ROOT / PICTURE)
    files.write(README, new)
    return 0


def filled(text: str) -> str:
    """The text with every block between <!-- name --> and <!-- /name --> made anew."""
    blocks = {
        "results": results_block(), "synthetic": synthetic_block(), "growth": growth_block(),
        "capabilities": capability_table(),
    }  # fmt: skip
    for name, content in blocks.items():
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
    made = [sections.task_section(group) for _, group in sorted(tasks.items())]
    if not made:
        return "No run is in results/ yet."
    return "\n\n".join([*made, f"![Learning curves, and time by length]({PICTURE})"])


def synthetic_block() -> str:
    """What was learnt of the synthetic tasks, from the records in results/synthetic."""
    found, complaints = records.find(SYNTHETIC)
    if complaints:
        raise ValueError("; ".join(complaints))
    return (
        synthetic.section([record for _, record in found]) if found else "No run is in results/synthetic yet."
    )


def growth_block() -> str:
    """Training steps by length, from the records in results/scaling."""
    found, complaints = records.find(SCALING)
    if complaints:
        raise ValueError("; ".join(complaints))
    made = []
    for group in by_length.groups([record for _, record in found]):
        chosen = [part for part in by_length.parts(group) if not part[0][0].startswith("forward")]
        shown = (tables.markdown(heads, rows) for heads, rows in chosen)
        commits = sections.commits_text(group)
        made += [by_length.title(group), *shown, f"{by_length.note(group)} {commits}"]
    return "\n\n".join(made) or "No run is in results/scaling yet."


def _cell(value: bool | str) -> str:
    return value if isinstance(value, str) else "yes" if value else "-"


if __name__ == "__main__":
    sys.exit(main())
