"""The shape of a record: what is in each, and of which type. Whoever reads one may count on it."""

from typing import Any

NUMBER, NOTHING = (int, float), type(None)
ANY, INDEX = "*", "#"  # keys that stand for any, and for any whole number
OPTIONAL = "?"  # begins a key that may be missing

Shape = Any  # a type, a tuple of types, [the shape of each item], {key: shape}

SCORES = {ANY: (*NUMBER, NOTHING)}
BYTES = dict.fromkeys(("arguments", "outputs", "temporaries", "aliased", "total"), int)
SECONDS = {"median": NUMBER, "low": NUMBER, "high": NUMBER, "n": int}
SEED = {
    "outcome": str, "?reason": (str, NOTHING), "?step": int, "?test": SCORES, "?at_chance": bool,
    "?test_at_length": {INDEX: SCORES}, "?at_chance_at_length": {INDEX: bool},
}  # fmt: skip
CONFIG = {
    "seeds": [int], "task": {"name": str}, "attention": {"name": str}, "eval": {"batch_size": int},
    "train": {"batch_size": int, "steps": int}, "optimizer": {"learning_rate_grid": [NUMBER]},
}  # fmt: skip
PROVENANCE = {
    "code_sha256": str, "git": ({"commit": str, "dirty": bool}, NOTHING),
    "python": str, "packages": {ANY: str},
    "machine": {"processor": str, "usable_cores": int}, "device": {"platform": str, "kind": str},
}  # fmt: skip
RECORD: dict[str, Shape] = {
    "name": str, "identity": str, "outcome": str, "reason": (str, NOTHING), "exit_code": (int, NOTHING),
    "not_citable": [str], "config": CONFIG, "differences": dict,
    "task": {
        "name": str, "version": int, "sha256": str, "length": int, "eval_lengths": [int], "primary": str,
        "better": str, "chance": (SCORES, NOTHING), "baselines": {ANY: NUMBER},
    },
    "attention": {"name": str, "text": str},
    "parameters": {"total": int, "by_array": dict},
    "flops": {"forward": NUMBER, "training": NUMBER, "attention": NUMBER},
    "memory": {
        "?training_step": BYTES, "?forward": BYTES,
        "?measured": {ANY: {"bytes": (int, NOTHING), "method": str}},
    },
    "speed": {
        "?training_step": SECONDS, "?forward": SECONDS, "?tokens_per_second": NUMBER,
        "?compile_seconds": {ANY: NUMBER}, "?cached": [str],
    },
    "seeds": {INDEX: SEED}, "groups": [[int]], "grid": {ANY: dict},
    "learning_rate": (*NUMBER, NOTHING), "not_evaluated": {INDEX: str}, "summary": dict,
    "provenance": PROVENANCE, "sessions": [{"config": dict}], "timings": [str],
}  # fmt: skip


def wrong(value: Any, shape: Shape, at: str = "") -> str | None:
    """Where a value has not the shape, in a phrase; None if it has it. What it has beside that may be."""
    if isinstance(shape, tuple):
        found = [wrong(value, each, at) for each in shape]
        return None if None in found else found[0]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{at} is no list"
        items = (wrong(item, shape[0], f"{at}.{index}") for index, item in enumerate(value))
        return next(filter(None, items), None)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{at or 'it'} is no dictionary"
        return next(filter(None, (_wrong_part(value, key, part, at) for key, part in shape.items())), None)
    if isinstance(value, shape) and (shape is not int or not isinstance(value, bool)):
        return None
    return f"{at} is no {'text' if shape is str else shape.__name__}"


def _wrong_part(value: dict[str, Any], key: str, shape: Shape, at: str) -> str | None:
    path = f"{at}." if at else ""
    if key in (ANY, INDEX):
        for name, item in value.items():
            if key == INDEX and not (name.isascii() and name.isdigit()):
                return f"{path}{name} is named by no number"
            if found := wrong(item, shape, path + name):
                return found
        return None
    name = key.removeprefix(OPTIONAL)
    if name not in value:
        return None if key.startswith(OPTIONAL) else f"there is no {path}{name}"
    return wrong(value[name], shape, path + name)
