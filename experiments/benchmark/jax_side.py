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

Program = Callable[[list[Any], dict[str, Any]], list[Any]]


def attend(name: str) -> Callable[..., Any]:
    """Attention by one of our variants with its default hyperparameters, or by a peer in jax."""
    if name in peers.PEERS:
        return peers.PEERS[name].build(0)
    variant, mask = peers.ours(name), attention.Mask(causal=not peers.two_sided(name))

    def call(query, key, value, **besides):
        key = None if variant.capabilities.shared_key else key
        return variant(query, key, value, mask, **besides)

    return call


def besides(name: str, length: int) -> dict[str, Any]:
    """What `attend` takes after query, key and value."""
    return {} if name in peers.PEERS else inputs.besides(peers.ours(name), length)


def programs(name: str) -> dict[str, Program]:
    """`forward`: the output. `gradient`: of its product with the cotangent, by query, key and value.

    What else a variant takes is an argument too: as a constant it would be prepared before the clock starts.
    """

    def forward(arrays, besides):
        return [attend(name)(*arrays, **besides)]

    def gradient(arrays, besides):
        *arrays, cotangent = arrays
        return list(jax.vjp(functools.partial(attend(name), **besides), *arrays)[1](cotangent))

    return {"forward": forward, "gradient": gradient}


def outputs(name: str, length: int, part: str) -> list[Any]:
    """What a part gives for the first draw: arrays B T N H."""
    return jax.jit(programs(name)[part])(inputs.fresh(length, part, 0), besides(name, length))


def measure_parts(name: str, length: int) -> dict[str, Any]:
    """Time, compile time and compiled memory of each part, and of what has a goal where its time is spent.

    Neither is timed unless both fit: what has no gradient trains nothing.
    """
    cell: dict[str, Any] = {}
    compiled, others = {}, besides(name, length)
    for part, program in programs(name).items():
        start = time.perf_counter()
        compiled[part] = jax.jit(program).lower(inputs.fresh(length, part, 0), others).compile()
        seconds = time.perf_counter() - start
        cell[part] = {"compile_seconds": seconds, "memory": measure.compiled_memory(compiled[part])}
    most = max(found["memory"]["total"] for found in cell.values())
    if reason := measure.shortage(most, jax.devices()[0]):
        for found in cell.values():
            found |= {"outcome": records.OUT_OF_MEMORY_COMPILED, "reason": reason}
        return cell
    for part, found in cell.items():
        draws = ((inputs.fresh(length, part, draw), others) for draw in itertools.count())
        seconds = timing.timed(lambda arguments, run=compiled[part]: run(*arguments), draws)
        found |= {"outcome": "measured", "seconds": seconds}
    if any((goal.variant, goal.length) == (name, length) for goal in peers.GOALS):
        cell["spent"] = profile.spent(compiled["gradient"], inputs.fresh(length, "gradient", 0), others)
    return cell
