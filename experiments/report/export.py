"""Tables and pictures for a paper, as files."""

import re
from pathlib import Path

from experiments import files
from experiments.report import by_length, charts, groups, latex, sections, separated, svg
from experiments.report.gathered import Found


def export(found: Found, folder: Path) -> list[Path]:
    """Write them into a folder; what was written. Raises OSError if that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"runs.csv": separated.runs(found.records), "seeds.csv": separated.seeds(found.records)}
    lengths = by_length.groups(found.records)
    pictures = [chart for group in lengths for chart in charts.growth(group)]
    pictures += [charts.longest(plan) for plan in found.longest]
    for group in groups.scored(found.records, lengths):
        name = _name(f"{group[0]['task']['name']}-{group[0]['task']['length']}", made)
        made[f"{name}.md"] = sections.task_section(group) + "\n"
        made[f"{name}.tex"] = latex.table(group) + "\n"
        pictures += charts.of_task(group, found.runs)
    for name, content in made.items():
        files.write(folder / name, content)
    drawn = [path for chart in pictures for path in svg.save(chart, folder)]
    return [*(folder / name for name in made), *drawn]


def _name(wanted: str, taken: dict[str, str]) -> str:
    """One that no other table has: two groups of one task may differ in budget or machine."""
    plain = re.sub(r"[^\w.-]", "-", wanted)
    names = [plain, *(f"{plain}-{number}" for number in range(2, len(taken) + 2))]
    return next(name for name in names if f"{name}.md" not in taken)
