"""A record as one sentence and as BibTeX."""

import re
from typing import Any

from experiments import provenance
from experiments.model import registry
from experiments.records import Record
from experiments.report import compare, digits, latex


def refusal(record: Record) -> str | None:
    """Why a record has no number to quote, or must not be quoted; None if it may be."""
    if record["not_citable"]:
        changed = (record["provenance"]["git"] or {}).get("status", [])
        files = f" ({', '.join(line.strip() for line in changed)})" if changed else ""
        return f"not citable: {'; '.join(record['not_citable'])}{files}"
    if record["provenance"]["git"] is None:
        return "not citable: its code is not known by a commit"
    if not compare.scores(record, record["task"]["primary"]):
        return f"has no test score: {compare.result(record)}"
    return None


def sentence(record: Record) -> str:
    """What was found, with interval, number of seeds, hardware, versions and commit."""
    task, machine = record["task"], record["provenance"]["machine"]
    versions = record["provenance"]["packages"]
    return (
        f"On the task {task['name']} (version {task['version']}, length {task['length']}), "
        f"{_subject(record)} has a test {task['primary'].replace('_', ' ')} of "
        f"{_number(record)}{_beside(record)}, "
        f"trained for {_budget(record)} on {_device(record)} ({machine['processor']}, "
        f"{machine['usable_cores']} cores) with jax {versions['jax']}; "
        f"attention-bench, {provenance.commit(record['provenance'])}, record "
        f"{record['name']}-{record['identity']}."
    )


def _subject(record: Record) -> str:
    told = record["attention"]
    other = told["name"] in registry.RECURRENT or "layers" in told
    return told["text"] if other else f"{told['text']} attention"


def bibtex(record: Record) -> str:
    """An entry of type misc; its note is the `sentence`."""
    name = f"{record['name']}-{record['identity']}"
    fields = {
        "title": f"{{attention-bench}}: {latex.escaped(record['attention']['text'])} on "
        f"{latex.escaped(record['task']['name'])}, length {record['task']['length']}",
        "author": "{The attention-bench authors}",
        "year": _year(record),
        "version": record["provenance"]["git"]["commit"],
        "note": latex.escaped(sentence(record)),
    }
    lines = [f"  {field} = {{{value}}}," for field, value in fields.items()]
    key = re.sub(r"[^\w.-]", "-", name, flags=re.ASCII)
    return "\n".join([f"@misc{{attention-bench:{key},", *lines, "}"])


def _number(record: Record) -> str:
    metric = record["task"]["primary"]
    found = compare.interval(list(compare.scores(record, metric).values()))
    mean, half = digits.shown(found["mean"], found["half_width"])
    if half is None:
        return f"{mean} (one seed, so no interval)"
    interval = f"mean and half the {compare.CONFIDENCE:.0%} Student-t interval, n = {found['n']} seeds"
    return f"{mean} ± {half} ({interval})"


def _beside(record: Record) -> str:
    """What must not be left out: chance, seeds that failed, and all remarks."""
    chance = (record["task"]["chance"] or {}).get(record["task"]["primary"])
    failed = len(compare.failures(record))
    told = [] if chance is None else [f"chance is {chance:.4g}"]
    told += [f"{failed} of {len(record['config']['seeds'])} seeds failed"] if failed else []
    told += compare.remarks(record)
    return f" ({'; '.join(told)})" if told else ""


def _budget(record: Record) -> str:
    train = record["config"]["train"]
    return f"at most {train['steps']} steps of {train['batch_size']} sequences"


def _device(record: Record) -> str:
    device = record["provenance"]["device"]
    kind = device["kind"] if device["kind"] != device["platform"] else device["platform"].upper()
    return f"{device.get('used', device['count'])} {kind}"


def _year(record: Record) -> str:
    sessions: list[dict[str, Any]] = record["sessions"]
    return max(session["began"] for session in sessions)[:4]
