"""Compiles configs for one device, in a process of its own: a compiler may crash.

    python -m experiments.plan.worker tpu-v5e

Reads one JSON line for each request, {"config": path, "overrides": [...], "programs": [...]}, and answers
with one. The environment must be `environment()`'s from the start.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies

import attention
from experiments import measure, records
from experiments.config import settings
from experiments.fields import Config
from experiments.plan.devices import find, xla_target
from experiments.tasks.task import Task
from experiments.training import layout, program

COMPILED, FAILED = "compiled", "failed"  # outcomes, beside records.OUT_OF_MEMORY_COMPILED
HERE = "cpu"  # the device that is here


def environment(num_devices: int = 1) -> dict[str, str]:
    """Of a worker's process: the compilers of other devices answer, and look for no device.

    The CPU here is taken for so many.
    """
    return os.environ | {
        "JAX_NUM_CPU_DEVICES": str(num_devices),
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else the second TPU at once finds the first one's lock
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def compiled(config: Config, task: Task, target: str, programs: Sequence[str]) -> dict[str, Any]:
    """Memory of programs ("training_step", "forward") on a target, or why there is none.

    {"outcome": "compiled", "memory": {program: bytes by part}, "compile_seconds", "compiler_estimate":
    {program: seconds}}, or {"outcome": "out of memory (compiled)", "reason"}.
    """
    start = time.perf_counter()
    found, platform = _devices(target)
    mesh = layout.mesh(config, found)
    memory, estimate = {}, {}
    for name in programs:
        # Traced within the context, which decides block sizes: nothing traced before may be used.
        with attention.compiling_for(platform):
            function, inputs = program.functions(config, task, mesh=mesh)[name]
            lowered = function.trace(*inputs).lower()
        try:
            done = lowered.compile(program.options(config, platform))
        except jax.errors.JaxRuntimeError as error:
            if measure.EXHAUSTED not in str(error):
                raise
            return {"outcome": records.OUT_OF_MEMORY_COMPILED, "reason": _first_line(error)}
        memory[name] = measure.compiled_memory(done)
        seconds = (done.cost_analysis() or {}).get("optimal_seconds")
        if seconds is not None and seconds > 0:
            estimate[name] = seconds
    seconds = time.perf_counter() - start
    return {
        "outcome": COMPILED,
        "memory": memory,
        "compile_seconds": seconds,
        "compiler_estimate": estimate,
    }


def _devices(target: str) -> tuple[Any, str]:
    """The target's devices, None for those here, and its platform."""
    if target == HERE:
        return None, "cpu"
    device = find(target)
    if device.kind == "tpu":
        topology = topologies.get_topology_desc(device.slice, platform="tpu", **device.options)
    else:
        topology = topologies.get_topology_desc(
            device.name, platform="cuda", topology=device.slice, target_config=xla_target(device)
        )
    return topology.devices, device.kind


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def main(target: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print is no answer
    for line in sys.stdin:
        request = json.loads(line)
        config = settings.load(request["config"], request["overrides"])
        try:
            answer = compiled(config, settings.task(config), target, request["programs"])
        except Exception as error:  # whatever a compiler does is a result
            answer = {"outcome": FAILED, "reason": f"{type(error).__name__}: {_first_line(error)}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
