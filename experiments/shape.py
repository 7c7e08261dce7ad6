"""The shape of a record: what is in each, and of which type. Whoever reads one may count on it."""

import dataclasses
import math
from typing import Any

NUMBER, NOTHING = (int, float), type(None)
ANY, INDEX = "*", "#"  # keys that stand for any, and for any whole number
OPTIONAL = "?"  # begins a key that may be missing


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """A number that is not below another one, whole unless `types` say else."""

    least: int
    types: Any = int


Shape = Any  # a type, a tuple of shapes, AtLeast, [the shape of each item], {key: shape}

COUNT, SIZE, AMOUNT = AtLeast(0), AtLeast(1), AtLeast(0, NUMBER)
SCORES = {ANY: (*NUMBER, NOTHING)}
BYTES = dict.fromkeys(("arguments", "outputs", "temporaries", "aliased", "total"), COUNT)
SECONDS = {"median": AMOUNT, "low": AMOUNT, "high": AMOUNT, "n": COUNT}
SEED = {
    "outcome": str, "?reason": (str, NOTHING), "?step": COUNT, "?test": SCORES, "?at_chance": bool,
    "?test_at_length": {INDEX: SCORES}, "?at_chance_at_length": {INDEX: bool},
    "?timing": {"?train": (AMOUNT, NOTHING)},
}  # fmt: skip
CONFIG = {
    "seeds": [int], "task": {"name": str}, "attention": {"name": str}, "eval": {"batch_size": SIZE},
    "model": dict, "train": {"batch_size": SIZE, "steps": COUNT, "?flops": (AMOUNT, NOTHING)},
    "optimizer": {"learning_rate_grid": [NUMBER]},
}  # fmt: skip
PROVENANCE = {
    "code_sha256": str, "git": ({"commit": str, "dirty": bool, "?status": [str]}, NOTHING),
    "python": str, "packages": {"jax": str, "flax": str, ANY: str},
    "machine": {"processor": str, "usable_cores": int},
    "device": {"platform": str, "kind": str, "count": COUNT, "?used": COUNT},
    "environment": {ANY: str}, "jax_settings": {ANY: (str, bool, int, NOTHING)},
}  # fmt: skip
RECORD: dict[str, Shape] = {
    "name": str, "identity": str, "outcome": str, "reason": (str, NOTHING), "exit_code": (int, NOTHING),
    "not_citable": [str], "config": CONFIG, "differences": dict,
    "task": {
        "name": str, "version": int, "sha256": str, "length": SIZE, "eval_lengths": [SIZE], "primary": str,
        "better": str, "chance": (SCORES, NOTHING), "baselines": {ANY: NUMBER},
    },
    "attention": {
        "name": str, "text": str, "?capabilities": {"?time": str, "?memory": str}, "?hyperparameters": dict,
    },
    "parameters": {"total": COUNT, "by_array": dict},
    "flops": {"forward": AMOUNT, "training": AMOUNT, "attention": AMOUNT},
    "?decoding": {"length": SIZE, "cache_bytes": (COUNT, NOTHING)},
    "?sample": {"seed": int, "prompt": str, "text": str, "temperature": AMOUNT, "top_p": AMOUNT},
    "memory": {
        "?training_step": BYTES, "?forward": BYTES,
        "?measured": {ANY: {"bytes": (COUNT, NOTHING), "method": str}},
    },
    "speed": {
        "?training_step": SECONDS, "?forward": SECONDS, "?tokens_per_second": AMOUNT,
        "?compile_seconds": {ANY: AMOUNT}, "?cached": [str],
    },
    "seeds": {INDEX: SEED}, "groups": [[int]], "grid": {ANY: dict},
    "learning_rate": (*NUMBER, NOTHING), "not_evaluated": {INDEX: str}, "summary": dict,
    "provenance": PROVENANCE, "timings": [str],
    "sessions": [{"config": dict, "argv": [str], "began": str, "?ended": (str, NOTHING)}],
}  # fmt: skip


def wrong_record(record: Any) -> str | None:
    """Where a record has not its shape, or a part has not what another one asks for; None if it has all."""
    if found := wrong(record, RECORD):
        return found
    if "training_step" in record["speed"] and "tokens_per_second" not in record["speed"]:
        return "there is no speed.tokens_per_second"
    if record["learning_rate"] is None and not record["config"]["optimizer"]["learning_rate_grid"]:
        return "learning_rate is null without config.optimizer.learning_rate_grid"
    if bad := [rate for rate in record["grid"] if not _is_number(rate)]:
        return f"grid.{bad[0]} is named by no number"
    empty = [name for name in ("sessions",) if not record[name]]
    empty += [f"groups.{index}" for index, group in enumerate(record["groups"]) if not group]
    return f"{empty[0]} is empty" if empty else None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


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
    if isinstance(shape, AtLeast):
        kind = "whole number" if shape.types is int else "number"
        low = wrong(value, shape.types, at) or value < shape.least
        return f"{at} is no {kind} of at least {shape.least}" if low else None
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
