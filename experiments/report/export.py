"""Tables and pictures for a paper, as files."""

import re
from pathlib import Path

from experiments import files
from experiments.report import by_length, charts, groups, latex, sections, separated, svg
from experiments.report.gathered import Found

LONGEST = 60  # characters of a name: 240 bytes at the most


def export(found: Found, folder: Path) -> list[Path]:
    """Write them into a folder; what was written. Raises OSError if that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"runs.csv": separated.runs(found.records), "seeds.csv": separated.seeds(found.records)}
    lengths = by_length.groups(found.records)
    pictures = [chart for group in lengths for chart in charts.growth(group)]
    pictures += [charts.longest(plan) for plan in found.longest]
    taken: set[str] = set()
    for group in groups.scored(found.records, lengths):
        name = _name(f"{group[0]['task']['name']}-{group[0]['task']['length']}", taken)
        made[f"{name}.md"] = sections.task_section(group) + "\n"
        made[f"{name}.tex"] = latex.table(group) + "\n"
        pictures += charts.of_task(group, found.runs)
    for name, content in made.items():
        files.write(folder / name, content)
    names: set[str] = set()
    drawn = [path for chart in pictures for path in svg.save(chart, folder, _name(chart.title, names))]
    return [*(folder / name for name in made), *drawn]


def _name(wanted: str, taken: set[str]) -> str:
    """One that no other has, which is then taken: two groups of one task may differ in budget or machine.

    Some file systems hold no longer one, nor tell capitals from small letters.
    """
    plain = re.sub(r"[^\w.]+", "-", wanted).strip("-")[:LONGEST] or "unnamed"
    names = [plain, *(f"{plain}-{number}" for number in range(2, len(taken) + 2))]
    name = next(name for name in names if name.lower() not in taken)
    taken.add(name.lower())
    return name
