"""All mixers by name: every variant of attention, and the recurrent ones."""

from collections import ChainMap
from typing import Any

from attention import Attention
from attention.registry import VARIANTS, build, fields_of
from experiments.model.gru import GRU
from experiments.model.recurrent import Recurrent
from experiments.model.ssm import SSM

Mixer = Attention | Recurrent  # what a layer mixes its tokens by

RECURRENT: dict[str, type[Recurrent]] = {"gru": GRU, "ssm": SSM}
# No copy: what somebody adds to either is in it.
MIXERS: ChainMap[str, type[Any]] = ChainMap(RECURRENT, VARIANTS)  # pyright: ignore[reportArgumentType]


def names() -> tuple[str, ...]:
    """Names of all mixers, attention first."""
    return tuple(MIXERS)


def hyperparameters(name: str) -> dict[str, Any]:
    """Fields of a mixer and their defaults. Raises ValueError for an unknown name."""
    return fields_of("attention", MIXERS, name)


def make(name: str, **fields: Any) -> Mixer:
    """The mixer `name` with `fields` in place of its defaults.

    Raises ValueError for an unknown name, an unknown field or a value that is not accepted.
    """
    return build("attention", MIXERS, name, fields)
