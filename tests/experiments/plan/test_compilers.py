"""With the compilers themselves, where the extra `plan` is installed: published figures, and slices."""

import importlib.util
import json
import subprocess
import sys

import pytest

import launch
from experiments.plan import worker
from tests.experiments.plan.test_plan import planned
from tests.experiments.runs import command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("libtpu", "jax_plugins.xla_cuda13"))),
        reason="pip install -e '.[plan]'",
    ),
]

# MiB of temporaries, forward and backward, causal, batch 1, 8 heads of 64, bfloat16, by length.
SCORES_WRITTEN_OUT = {4096: 1280, 16384: 20480, 65536: 262144}
MAPPED_WINDOW = {4096: 19, 16384: 67, 65536: 259}  # windows of 128 one by one, mapped over
COMPILE = """
import json, sys
import attention, jax, jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from experiments.plan import worker
target, name, *lengths = sys.argv[1:]
devices, platform = worker._devices(target)
def attend(*arrays):
    if name == "jax.nn":
        return jax.nn.dot_product_attention(*arrays, is_causal=True, implementation="xla")
    return attention.make(name)(*arrays, attention.Mask(causal=True))
gradient = jax.grad(lambda *arrays: attend(*arrays).astype(jnp.float32).sum(), (0, 1, 2))
for length in map(int, lengths):
    place = SingleDeviceSharding(devices[0])
    array = jax.ShapeDtypeStruct((1, length, 8, 64), jnp.bfloat16, sharding=place)
    with attention.compiling_for(platform):
        lowered = jax.jit(gradient).trace(array, array, array).lower()
    try:
        found = lowered.compile().memory_analysis().temp_size_in_bytes
    except jax.errors.JaxRuntimeError as error:
        assert "RESOURCE_EXHAUSTED" in str(error)
        found = None
    print(json.dumps({"length": length, "temporaries": found}))
"""


def temporaries(target, name, *lengths):
    """MiB by length, None where the compiler finds no room."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, target, name, *map(str, lengths)],
        env=worker.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["length"]: line["temporaries"] and line["temporaries"] / 2**20 for line in lines}


def test_a_gpus_figures_are_those_that_others_have_seen():
    found = temporaries("h200", "jax.nn", *SCORES_WRITTEN_OUT)
    assert found == pytest.approx(SCORES_WRITTEN_OUT, rel=0.02)


def test_scores_are_written_out_by_dense_and_not_by_full():
    """By dense in places once fewer than by others."""
    dense = temporaries("h200", "dense", *SCORES_WRITTEN_OUT)
    assert all(
        0.75 * others <= dense[length] <= 1.02 * others for length, others in SCORES_WRITTEN_OUT.items()
    )
    short, long = temporaries("h200", "full", 16384, 65536).values()
    assert long < 5 * short and long < 512


@pytest.mark.parametrize("target", ["h200", "tpu-v5e"])
def test_a_window_takes_no_more_than_one_that_is_mapped_over(target):
    found = temporaries(target, "window", *MAPPED_WINDOW)
    assert all((found[length] or 2**20) <= MAPPED_WINDOW[length] for length in found)


def test_a_tpu_has_no_room_for_the_scores_of_65536_tokens():
    found = temporaries("tpu-v5e", "jax.nn", 16384, 65536)
    assert found[16384] is not None and found[65536] is None


def test_compilers_of_several_tpus_work_side_by_side(tmp_path):
    """libtpu locks a file, which the second one would find locked."""
    targets = ("tpu-v4", "tpu-v5e", "tpu-v6e")
    assert launch.main(command(tmp_path, "--mode=plan", f"--target={','.join(targets)}")) == 0
    found = planned(tmp_path)["compiled_for"]
    assert {name: found[name]["outcome"] for name in targets} == dict.fromkeys(targets, worker.COMPILED)


@pytest.mark.parametrize(
    ("target", "mesh"),
    [
        ("tpu-v5e:2x2", {"mesh__data": 2, "mesh__sequence": 2, "attention__name": "window"}),
        ("h200:4", {"mesh__data": 4}),
    ],
)
def test_a_slice_compiles_and_each_device_has_its_share(tmp_path, target, mesh):
    asked = {"task__length": 4096, "task__eval_lengths": "()", "train__batch_size": 8}
    one = target.partition(":")[0]
    single = {name: value for name, value in mesh.items() if not name.startswith("mesh")}
    assert launch.main(command(tmp_path / "one", "--mode=plan", f"--target={one}", **asked, **single)) == 0
    assert launch.main(command(tmp_path / "four", "--mode=plan", f"--target={target}", **asked, **mesh)) == 0
    alone = planned(tmp_path / "one")["compiled_for"][one]
    shared = planned(tmp_path / "four")["compiled_for"][target]
    assert alone["outcome"] == shared["outcome"] == worker.COMPILED
    assert 4 * shared["roofline"]["operations"] == pytest.approx(alone["roofline"]["operations"], rel=0.01)
    assert shared["memory"]["training_step"]["total"] < alone["memory"]["training_step"]["total"]
