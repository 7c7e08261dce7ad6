"""How long a training step takes at least: its operations at a device's peak, its bytes at its bandwidth."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import measure
from experiments.plan.devices import find
from experiments.plan.worker import HERE

SIZE = 2048  # of the matrices that are multiplied to see how fast the device here is
COPIED = 2**27  # numbers of 4 bytes
TRIES = 3


def bound(
    target: str, dtype: str, operations: int, memory: dict[str, int], sharing: int = 1
) -> dict[str, Any]:
    """{"operations", "bytes", "compute_seconds", "memory_seconds", "bound_by"} of a step on a target.

    Bytes are the least that cross the device's memory: arguments read, outputs written, what the compiler
    plans as temporaries written and read once. A step that goes over its operands more often takes longer.
    Where several devices are one in truth, `sharing` of them, each has its part of the rates.
    """
    peak, bandwidth = (rate / sharing for rate in rates(target, dtype))
    moved = memory["arguments"] + memory["outputs"] + 2 * memory["temporaries"]
    compute, transfer = operations / peak, moved / bandwidth
    return {
        "operations": operations,
        "bytes": moved,
        "compute_seconds": compute,
        "memory_seconds": transfer,
        "bound_by": "compute" if compute >= transfer else "memory",
    }


def rates(target: str, dtype: str) -> tuple[float, float]:
    """Operations and bytes a second: by the maker's figures, and of the device here by trying."""
    if target == HERE:
        return _measured()
    device = find(target)
    return device.peak[dtype], device.bandwidth


@functools.cache
def _measured() -> tuple[float, float]:
    # float32: what a CPU computes in, whatever is asked for.
    square = np.ones((SIZE, SIZE), np.float32)
    multiply, copy = jax.jit(jnp.matmul), jax.jit(lambda x: x + 1)
    products = min(measure.times(lambda x: multiply(x, x), [square] * (TRIES + measure.WARM_UP)))
    copies = min(measure.times(copy, [np.ones(COPIED, np.float32)] * (TRIES + measure.WARM_UP)))
    return 2 * SIZE**3 / products, 2 * 4 * COPIED / copies
