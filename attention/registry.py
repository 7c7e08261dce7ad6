"""Variants by name."""

import dataclasses
import difflib
from typing import Any

from attention.dense import Dense
from attention.full import Full
from attention.interface import Attention, Capabilities
from attention.lsh import LSH
from attention.pooled import Pooled
from attention.window import Window

VARIANTS: dict[str, type[Attention]] = {
    "full": Full,
    "dense": Dense,
    "window": Window,
    "pooled": Pooled,
    "lsh": LSH,
}


def names() -> tuple[str, ...]:
    """Names of all variants."""
    return tuple(VARIANTS)


def hyperparameters(name: str) -> dict[str, Any]:
    """Fields of a variant and their defaults.

    Raises ValueError for an unknown name.
    """
    return {f.name: f.default for f in dataclasses.fields(_variant(name))}  # pyright: ignore[reportArgumentType]


def make(name: str, **fields: Any) -> Attention:
    """The variant `name` with `fields` in place of its defaults.

    Raises ValueError for an unknown name, an unknown field or a value that the variant does not accept.
    """
    accepted = hyperparameters(name)
    for field in fields:
        if field not in accepted:
            hint = difflib.get_close_matches(field, accepted, 1)
            raise ValueError(
                f"attention {name!r} has no field {field!r}"
                + (f" (did you mean {hint[0]!r}?)" if hint else "")
                + f"; its fields are {', '.join(accepted)}"
            )
    return _variant(name)(**fields)


def capabilities() -> dict[str, Capabilities]:
    """Capabilities of every variant with its default hyperparameters."""
    return {name: make(name).capabilities for name in VARIANTS}


def _variant(name: str) -> type[Attention]:
    if name not in VARIANTS:
        raise ValueError(f"unknown attention {name!r}; known are {', '.join(VARIANTS)}")
    return VARIANTS[name]
