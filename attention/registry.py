"""Variants by name."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from attention.block_sparse import BlockSparse
from attention.delta import Delta
from attention.dense import Dense
from attention.dilated import Dilated
from attention.full import Full
from attention.gated_linear import GatedLinear
from attention.interface import Attention, Capabilities
from attention.linear import Linear
from attention.linformer import Linformer
from attention.lsh import LSH
from attention.mean import Mean
from attention.moba import MoBA
from attention.native_sparse import NativeSparse
from attention.none import Nothing
from attention.nystrom import Nystrom
from attention.performer import Performer
from attention.pooled import Pooled
from attention.retention import Retention
from attention.sinkhorn import Sinkhorn
from attention.synthesizer import Synthesizer
from attention.window import Window
from attention.window_linear import WindowLinear

VARIANTS: dict[str, type[Attention]] = {
    "full": Full,
    "dense": Dense,
    "window": Window,
    "pooled": Pooled,
    "lsh": LSH,
    "block_sparse": BlockSparse,
    "dilated": Dilated,
    "sinkhorn": Sinkhorn,
    "moba": MoBA,
    "native_sparse": NativeSparse,
    "linformer": Linformer,
    "nystrom": Nystrom,
    "linear": Linear,
    "performer": Performer,
    "window_linear": WindowLinear,
    "retention": Retention,
    "gated_linear": GatedLinear,
    "delta": Delta,
    "synthesizer": Synthesizer,
    "mean": Mean,
    "none": Nothing,
}

Named = TypeVar("Named")


def names() -> tuple[str, ...]:
    """Names of all variants."""
    return tuple(VARIANTS)


def hyperparameters(name: str) -> dict[str, Any]:
    """Fields of a variant and their defaults.

    Raises ValueError for an unknown name.
    """
    return fields_of("attention", VARIANTS, name)


def make(name: str, **fields: Any) -> Attention:
    """The variant `name` with `fields` in place of its defaults.

    Raises ValueError for an unknown name, an unknown field or a value that the variant does not accept.
    """
    return build("attention", VARIANTS, name, fields)


def capabilities() -> dict[str, Capabilities]:
    """Capabilities of every variant with its default hyperparameters."""
    return {name: make(name).capabilities for name in VARIANTS}


def fields_of(kind: str, known: Mapping[str, type], name: str) -> dict[str, Any]:
    """Fields and their defaults of the dataclass `known[name]`; `kind` says what these are, for the refusal.

    Raises ValueError for an unknown name.
    """
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}; known are {', '.join(known)}")
    return {field.name: field.default for field in dataclasses.fields(known[name])}


def build(kind: str, known: Mapping[str, type[Named]], name: str, fields: Mapping[str, Any]) -> Named:
    """A `known[name]` with `fields` in place of its defaults.

    Raises ValueError for an unknown name or field; the dataclass itself refuses values.
    """
    accepted = fields_of(kind, known, name)
    for field in fields:
        if field not in accepted:
            hint = difflib.get_close_matches(field, accepted, 1)
            raise ValueError(
                f"{kind} {name!r} has no field {field!r}"
                + (f" (did you mean {hint[0]!r}?)" if hint else "")
                + f"; its fields are {', '.join(accepted)}"
            )
    return known[name](**fields)
