"""A contender that is a function of torch, on as many threads as jax has cores."""

import importlib
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments import measure, provenance
from experiments.benchmark import inputs, peers, timing

NOT_SUPPORTED, OUT_OF_MEMORY = "not supported", "out of memory (estimated)"
ARRAYS = 8  # that are held at once: the inputs, the output, the gradients

Program = Callable[[list[Any]], list[Any]]


def programs(call: peers.Call) -> dict[str, Program]:
    """`forward` and `gradient` over a peer's tensors; the gradient of what is not read is None."""
    torch = importlib.import_module("torch")

    def forward(tensors):
        with torch.no_grad():
            return [call(*tensors)]

    def gradient(tensors):
        *tensors, cotangent = (each.requires_grad_(i < 3) for i, each in enumerate(tensors))
        return list(torch.autograd.grad(call(*tensors), tensors, cotangent, allow_unused=True))

    return {"forward": forward, "gradient": gradient}


def drawn(name: str, length: int, part: str, draw: int) -> list[Any]:
    """`inputs.fresh` as contiguous tensors in the order of axes that a peer takes."""
    torch = importlib.import_module("torch")
    arrays = (_turned(name, np.asarray(each)) for each in inputs.fresh(length, part, draw))
    return [torch.from_numpy(np.array(each, order="C")) for each in arrays]


def _turned(name: str, array: np.ndarray) -> np.ndarray:
    """From B T N H to a peer's order, or back."""
    return array.swapaxes(1, 2) if peers.PEERS[name].heads_first else array


def outputs(name: str, length: int, part: str) -> list[Any]:
    """What a part gives for the first draw: arrays B T N H, zeros for the gradient of what is not read.

    Raises NotImplementedError where the peer has no such part.
    """
    tensors = drawn(name, length, part, 0)
    found = programs(peers.PEERS[name].build(length))[part](tensors)
    unread = np.zeros(tensors[0].shape, np.float32)
    return [_turned(name, unread if each is None else each.numpy()) for each in found]


def measure_parts(name: str, length: int) -> dict[str, Any]:
    """Time of each part, and how far it makes the resident set grow."""
    if (platform := jax.devices()[0].platform) != "cpu":
        reason = f"peers on torch run on the CPU only, and jax uses the {platform}"
        return {part: {"outcome": NOT_SUPPORTED, "reason": reason} for part in inputs.COUNTS}
    array = 4 * length * inputs.SHAPE["batch"] * inputs.SHAPE["num_heads"] * inputs.SHAPE["head_dim"]
    needed = length * peers.PEERS[name].bytes_per_token + ARRAYS * array
    if reason := measure.shortage(needed, jax.devices()[0], "it is estimated to take"):
        return {part: {"outcome": OUT_OF_MEMORY, "reason": reason} for part in inputs.COUNTS}
    importlib.import_module("torch").set_num_threads(provenance.machine()["usable_cores"])
    call = peers.PEERS[name].build(length)
    return {part: _part(name, run, length, part) for part, run in programs(call).items()}


def _part(name: str, run: Program, length: int, part: str) -> dict[str, Any]:
    draws = (drawn(name, length, part, draw) for draw in itertools.count())
    first = next(draws)
    start = time.perf_counter()
    try:
        run(first)
    except NotImplementedError as error:
        return {"outcome": NOT_SUPPORTED, "reason": str(error)}
    seconds = time.perf_counter() - start
    return {
        "outcome": "measured",
        "first_call_seconds": seconds,
        "seconds": timing.timed(run, draws),
        "resident": measure.resident_growth(run, next(draws)),
    }
