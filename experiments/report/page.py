"""All that was found as one page: HTML that needs nothing beside it."""

import datetime
import re
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

from experiments import provenance, records
from experiments.records import Record
from experiments.report import (
    advice,
    best,
    by_length,
    cards,
    charts,
    compare,
    diagnosed,
    digits,
    groups,
    laws,
    published,
    sections,
    svg,
    tables,
    verdict,
)
from experiments.report.gathered import Found

MOST_MAPS = 6  # of a diagnosis; its own page has all
WEB = Path(__file__).with_name("web")


class Head(NamedTuple):
    text: str
    sorts: bool


class Cell(NamedTuple):
    text: str
    order: float | None = None  # what a column is sorted by; None: the text


def html(found: Found, title: str) -> str:
    """The page. Everything in it that comes from records is escaped."""
    lengths = by_length.groups(found.records)
    scored = groups.scored(found.records, lengths)
    advices = advice.advices(max(lengths, key=len), _trained(scored)) if lengths else []
    parts = {
        "advices": advices,
        "usual": advice.usual(advices) if advices else None,
        "lengths": sorted({each.length for each in advices}),
        "budgets": advice.BUDGETS,
        "advice_heads": advice.HEADS,
        "verdicts": [verdict.of_task(group) for group in _trained(scored)],
        "tasks": [_task(group, found.runs) for group in scored],
        "growth": [_growth(group) for group in lengths],
        "longest": [_shown(charts.longest(plan)) for plan in found.longest],
        "without": [_without(path, record) for path, record in found.runs if _is_without(record)],
        "inside": list(filter(None, (_inside(path, record, found) for path, record in found.runs))),
        "cards": [_card(card, found) for card in cards.cards(found.records)],
        "runs": [_run(path, record) for path, record in found.runs],
        "complaints": found.complaints,
    }
    parts["sections"] = [(name, head) for name, head in SECTIONS if parts.get(name, True)]
    return _rendered("page.html", title, f"from {len(found.runs)} runs", parts)


def diagnosis_html(found: dict[str, Any]) -> str:
    """The page of one diagnosis."""
    title = f"Inside {found['name']}-{found['identity']}"
    return _rendered("diagnosis.html", title, "", {"found": _diagnosis(found)})


def _rendered(template: str, title: str, of: str, parts: dict[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(WEB), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["code"] = code
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
    style, script = ((WEB / name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    text = environment.get_template(template).render(
        parts,
        title=title,
        style=Markup(style),
        script=Markup(script),
        made=" ".join(filter(None, ("Made", now, of, "by attention-bench."))),
    )
    return svg.apart(text)


SECTIONS = (
    ("verdict", "Which one?"), ("tasks", "Side by side"), ("growth", "By length"), ("longest", "Longest"),
    ("without", "Without a result"), ("inside", "Inside the heads"), ("cards", "Attention"),
    ("provenance", "Provenance"), ("complaints", "Not read"),
)  # fmt: skip


def code(text: str) -> Markup:
    """Escaped, and what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text.replace("**", "")))))


def _trained(scored: list[list[Record]]) -> list[list[Record]]:
    return [group for group in scored if any(record["config"]["seeds"] for record in group)]


def _task(group: list[Record], runs: list[tuple[Path, Record]]) -> dict[str, Any]:
    """What the template wants of one table of comparable records."""
    rows, task = compare.ranked(group), group[0]["task"]
    ahead = best.best([row["record"] for row in rows])
    at = [tables.at_lengths(row["record"]) for row in rows]
    lengths = [column for column in at[0] if any(cells[column] != "-" for cells in at)]
    names = [
        "attention",
        f"test {task['primary'].replace('_', ' ')}",
        "n",
        *lengths,
        *tables.COSTS,
        "remarks",
    ]
    simple = ", ".join(f"{name} {value:.4g}" for name, value in tables.simple_scores(task).items())
    few = len(group) <= best.MOST
    untested = f"Nothing was tested: {len(group)} runs are too many."
    claims = sections.claims_text(group) if few else untested
    origin = sections.origin_text(group[0]["provenance"])
    return {
        "name": task["name"],
        "anchor": f"task-{task['name']}-{task['length']}-{group[0]['identity']}",
        "head": f"`{task['name']}`, length {task['length']:,}, {tables.budget(group[0])}",
        "caption": f"{task['better'].capitalize()} is better. {origin}.",
        "heads": [Head(name, name != "remarks") for name in names],
        "rows": [_row(row, lengths, ahead) for row in rows],
        "notes": [
            *([f"For comparison: {simple}."] if simple else []),
            *filter(None, (published.line(task["name"]), sections.rates_text(group), claims)),
            sections.commits_text(group),
        ],
        "charts": [_shown(chart) for chart in charts.of_task(group, runs)],
    }


def _row(row: dict[str, Any], lengths: list[str], ahead: list[Record]) -> dict[str, Any]:
    record, score = row["record"], row["score"]
    costs, numbers, at = tables.costs(record), tables.cost_numbers(record), tables.at_lengths(record)
    failed = f" ({row['failed']} failed)" if row["failed"] else ""
    cells = [
        Cell(record["attention"]["text"]),
        Cell(_score(row), score["mean"]),
        Cell(f"{score['n']}{failed}", score["n"]),
        *(Cell(at[column]) for column in lengths),
        *(Cell(costs[name], numbers[name]) for name in tables.COSTS),
        Cell("; ".join(row["labels"])),
    ]
    return {"cells": cells, "anchor": anchor(record), "best": any(record is each for each in ahead)}


def _score(row: dict[str, Any]) -> str:
    if row["score"]["mean"] is None:
        return compare.result(row["record"])
    return digits.text(row["score"])


def anchor(record: Record) -> str:
    """Where a run's provenance stands in the page."""
    return f"run-{record['name']}-{record['identity']}"


def _growth(group: list[Record]) -> dict[str, Any]:
    return {
        "title": by_length.title(group),
        "charts": [_shown(chart) for chart in charts.growth(group)],
        "parts": [{"heads": heads, "rows": rows} for heads, rows in by_length.parts(group)],
        "note": by_length.note(group),
    }


def _shown(chart: charts.Chart) -> dict[str, Any]:
    return {"svg": Markup(svg.inline(chart)), "told": chart.told}


def _inside(path: Path, record: Record, found: Found) -> dict[str, Any] | None:
    """Looks at a run while it trained, and diagnoses of what became of it."""
    looked, own = diagnosed.looks(path, record), found.diagnoses.get(path, [])
    if looked is None and not own:
        return None
    seen = [*([looked[1][-1]] if looked else []), *(each["look"] for each in own)]
    told = len({finding for each in seen for finding in each["findings"]})
    return {
        "anchor": f"inside-{record['name']}-{record['identity']}",
        "title": f"`{path.name}`, `{record['attention']['text']}` on `{record['task']['name']}`",
        "verdict": f"{told} finding{'s' * (told > 1)}" if told else "nothing stands out",
        "last": diagnosed.last(*looked) if looked else None,
        "charts": [_shown(chart) for chart in diagnosed.courses(record, *looked)] if looked else [],
        "cost": diagnosed.cost(path, record) if looked else None,
        "diagnoses": [_diagnosis(each, MOST_MAPS) for each in own],
    }


def _diagnosis(found: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    parts = diagnosed.shown(found, most)
    return {**parts, "maps": [_shown(chart) for chart in parts["maps"]]}


def _card(card: cards.Card, found: Found) -> dict[str, Any]:
    """With the heat map of a head on the task's own data, of the first run that has one."""
    own = (
        each
        for path, record in found.runs
        for each in found.diagnoses.get(path, [])
        if record["attention"]["name"] == card.name and each["text"] is None
    )
    chart = next((chart for each in own for chart in diagnosed.maps(each)[:1]), None)
    # Another title than where it stands among others: names in a page are made of it.
    shown = None if chart is None else _shown(chart._replace(title=f"{card.name}, a head: {chart.title}"))
    return {**card._asdict(), "laws": laws.told(card.name), "map": shown}


def _is_without(record: Record) -> bool:
    return record["outcome"] != records.FINISHED or bool(compare.failures(record))


def _without(path: Path, record: Record) -> str:
    failed = compare.failures(record)
    seeds = f"; seeds {', '.join(failed)} have no result" if failed else ""
    reason = f": {record['reason']}" if record["reason"] else ""
    return f"{path.name}: {record['outcome']}{reason}{seeds}"


def _run(path: Path, record: Record) -> dict[str, Any]:
    """Provenance of one run, as pairs of words and values."""
    origin, git = record["provenance"], record["provenance"]["git"]
    last = record["sessions"][-1] if record["sessions"] else {}
    facts = {
        "folder": str(path),
        "command": " ".join(["python", *last.get("argv", [])]) if last else "-",
        "unlike the defaults": ", ".join(f"{key}={value}" for key, value in record["differences"].items()),
        "seeds": ", ".join(map(str, record["config"]["seeds"])) or "none",
        "code": provenance.commit(origin),
        "not citable": "; ".join(record["not_citable"]),
        "changed files": ", ".join(line.strip() for line in (git or {}).get("status", [])),
        "data": "{name} version {version}, sha256 {sha256}".format_map(record["task"]),
        "machine": f"{origin['machine']['processor']}, {origin['machine']['usable_cores']} cores",
        "device": f"{origin['device']['count']} x {origin['device']['kind']}",
        "versions": ", ".join(
            f"{name} {origin['packages'][name]}" for name in provenance.NUMERIC if name in origin["packages"]
        ),
        "Python": origin["python"],
        "began": last.get("began", "-"),
        "ended": last.get("ended") or "-",
        "memory measured by": record["memory"].get("measured", {}).get("training_step", {}).get("method", ""),
    }
    shown = [(name, value) for name, value in facts.items() if value]
    return {"name": path.name, "anchor": anchor(record), "outcome": record["outcome"], "facts": shown}
