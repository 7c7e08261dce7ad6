"""What a diagnosis leaves in a run's folder, and what a look leaves in its metrics: both are JSON."""

import hashlib
from pathlib import Path
from typing import Any

from experiments import files
from experiments.shape import ANY, INDEX, NOTHING, NUMBER, wrong

FOLDER = "diagnosis"
SCHEMA = 2
LEAST_KEYS = 8  # that a row must see to say anything of how a head spreads
REACHED = 0.9  # of the weight: what lies within a head's reach

MAYBE = (*NUMBER, NOTHING)
STATISTICS = (
    "entropy", "evenness", "from_uniform", "from_nearest", "nearest", "distance", "reach", "on_first",
)  # fmt: skip
HEADS = {INDEX: {name: [MAYBE] for name in STATISTICS}}  # by layer, a number for each head
LOOK = {
    "step": int, "items": int, "tokens": int, "heads": HEADS, "findings": [str], "seconds": NUMBER,
    "observed": {INDEX: {ANY: {"values": [MAYBE], "meaning": str, "least": MAYBE}}},
    "gradients": {ANY: {INDEX: MAYBE}},
}  # fmt: skip
DIAGNOSIS = {
    "schema": int, "name": str, "identity": str, "attention": str, "task": str, "outcome": str, "seed": int,
    "code": str, "trained_by": str, "look": LOOK, "before": {"heads": HEADS}, "seconds": NUMBER,
    "text": (str, NOTHING), "num_tokens": int, "tokens": [str], "maps": {INDEX: [[[MAYBE]]]},
    "vectors": (
        {"word": str, "text": str, "other": str, "?same": bool, "layers": {INDEX: {ANY: [NUMBER]}}}, NOTHING,
    ),
}  # fmt: skip


def path(folder: Path, seed: int, *asked: Any) -> Path:
    """Where the diagnosis of a run's seed is kept: that of the task's own data, or of what was `asked`."""
    own = "" if not any(asked) else "-" + hashlib.sha256(repr(asked).encode()).hexdigest()[:8]
    return folder / FOLDER / f"seed-{seed}{own}.json"


def read(at: Path) -> dict[str, Any]:
    """Raises OSError, or ValueError that names the file if it is no diagnosis."""
    found = files.read_json(at)
    complaint = wrong(found, {"schema": int}) or (
        f"it has schema {found['schema']}, not {SCHEMA}" if found["schema"] != SCHEMA else None
    )
    complaint = complaint or wrong(found, DIAGNOSIS) or _unlike(found)
    if complaint:
        raise ValueError(f"{at} is not a diagnosis: {complaint}")
    return found


def is_look(line: dict[str, Any]) -> bool:
    """Whether a line of metrics is a whole look."""
    return not wrong(line, LOOK) and not _uneven(line)


def _unlike(found: dict[str, Any]) -> str | None:
    """Where parts that belong together have not the same size."""
    look, size = found["look"], len(found["tokens"])
    if not size:
        return "it has no tokens"
    if complaint := _uneven(look) or _uneven({**look, "heads": found["before"]["heads"]}):
        return complaint
    counts = {layer: len(own["entropy"]) for layer, own in look["heads"].items()}
    before = {layer: len(own["entropy"]) for layer, own in found["before"]["heads"].items()}
    if counts != before or counts != {layer: len(own) for layer, own in found["maps"].items()}:
        return "its layers or heads are not the same in all its parts"
    sizes = {len(x) for own in found["maps"].values() for head in own for x in (head, *head)}
    return f"its maps are not of its {size} tokens" if sizes - {size} else None


def _uneven(look: dict[str, Any]) -> str | None:
    for layer, own in look["heads"].items():
        observed = [each["values"] for each in look["observed"].get(layer, {}).values()]
        if len({len(values) for values in (*own.values(), *observed)}) != 1:
            return f"layer {layer} has not the same heads in all its numbers"
    return None
