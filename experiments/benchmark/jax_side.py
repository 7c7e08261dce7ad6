"""A contender that is a jax program: a variant of ours, or jax's own attention."""

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax

import attention
from experiments import measure, records
from experiments.benchmark import inputs, peers, profile, timing

Program = Callable[[list[Any]], list[Any]]


def attend(name: str) -> peers.Call:
    """Causal attention by a registered variant with its default hyperparameters, or by a peer in jax."""
    if name in peers.PEERS:
        return peers.PEERS[name].build(0)
    variant = attention.make(name)

    def call(query, key, value):
        key = None if variant.capabilities.shared_key else key
        return variant(query, key, value, attention.Mask(causal=True))

    return call


def programs(name: str) -> dict[str, Program]:
    """`forward`: the output. `gradient`: of its product with the cotangent, by query, key and value."""

    def forward(arrays):
        return [attend(name)(*arrays)]

    def gradient(arrays):
        *arrays, cotangent = arrays
        return list(jax.vjp(attend(name), *arrays)[1](cotangent))

    return {"forward": forward, "gradient": gradient}


def outputs(name: str, length: int, part: str) -> list[Any]:
    """What a part gives for the first draw: arrays B T N H."""
    return jax.jit(programs(name)[part])(inputs.fresh(length, part, 0))


def measure_parts(name: str, length: int) -> dict[str, Any]:
    """Time, compile time and compiled memory of each part, and of what has a goal where its time is spent.

    Neither is timed unless both fit: what has no gradient trains nothing.
    """
    cell: dict[str, Any] = {}
    compiled = {}
    for part, program in programs(name).items():
        start = time.perf_counter()
        compiled[part] = jax.jit(program).lower(inputs.fresh(length, part, 0)).compile()
        seconds = time.perf_counter() - start
        cell[part] = {"compile_seconds": seconds, "memory": measure.compiled_memory(compiled[part])}
    most = max(found["memory"]["total"] for found in cell.values())
    if reason := measure.shortage(most, jax.devices()[0]):
        for found in cell.values():
            found |= {"outcome": records.OUT_OF_MEMORY_COMPILED, "reason": reason}
        return cell
    for part, found in cell.items():
        draws = map(functools.partial(inputs.fresh, length, part), itertools.count())
        found |= {"outcome": "measured", "seconds": timing.timed(compiled[part], draws)}
    if any((goal.variant, goal.length) == (name, length) for goal in peers.GOALS):
        cell["spent"] = profile.spent(compiled["gradient"], inputs.fresh(length, "gradient", 0))
    return cell
