"""Devices that a training step can be compiled for without having one, by their makers' figures."""

import dataclasses
import math
import re
from collections.abc import Mapping

GB, GIB, TERA = 10**9, 2**30, 10**12


@dataclasses.dataclass(frozen=True)
class Device:
    """One device as jax counts them, and how XLA is told of it; or a slice of `count` such devices.

    `memory` bytes; `bandwidth` bytes a second of it; `peak` operations a second of dense matrix products by
    the dtype that they are asked for in, at jax's default precision: float32 is multiplied as bfloat16 on a
    TPU and as TF32 on a GPU.
    """

    name: str
    kind: str  # jax's platform: tpu, gpu
    title: str
    memory: int
    bandwidth: float
    peak: Mapping[str, float]
    source: str
    slice: str = ""  # the smallest that can be described, or the one that is asked for
    per_chip: int = 1  # devices
    count: int = 1
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of a TPU's topology
    gpu: Mapping[str, int | float] = dataclasses.field(default_factory=dict)  # of a GPU: what XLA asks for


def find(target: str) -> Device:
    """A device by its name, or a slice of a TPU as "tpu-v5e:4x4", or GPUs of one machine as "h200:8".

    Raises ValueError, naming what is known.
    """
    name, colon, shape = target.partition(":")
    if name not in DEVICES:
        raise ValueError(f"{target} is unknown; known are {', '.join(DEVICES)}")
    device = DEVICES[name]
    if not colon:
        return device
    like = device.slice.partition(":")[2] if device.kind == "tpu" else "8"
    if not re.fullmatch("x".join([r"[1-9]\d{0,3}"] * (like.count("x") + 1)), shape):
        raise ValueError(f"{target} is no slice; one is written as {name}:{like}")
    count = math.prod(map(int, shape.split("x"))) * device.per_chip
    slice_ = f"{device.slice.partition(':')[0]}:{shape}" if device.kind == "tpu" else f"1x1x{shape}"
    return dataclasses.replace(
        device, name=target, title=f"{device.title}, {shape}", slice=slice_, count=count
    )


def _tpu(
    name: str,
    title: str,
    gib: float,
    gb: float,
    tera: float,
    page: str,
    slice_: str,
    per_chip: int = 1,
    **options: str,
) -> Device:
    peak = {"bfloat16": tera * TERA, "float32": tera * TERA}
    source = f"https://cloud.google.com/tpu/docs/{page}"
    return Device(
        name, "tpu", title, int(gib * GIB), gb * GB, peak, source,
        slice=slice_, per_chip=per_chip, options=options,
    )  # fmt: skip


def _gpu(
    name: str,
    title: str,
    memory: int,
    gb: float,
    bfloat16: float,
    tf32: float,
    page: str,
    product: str = "",
    **gpu: int | float,
) -> Device:
    peak = {"bfloat16": bfloat16 * TERA, "float32": tf32 * TERA}
    specs = "https://github.com/openxla/xla/tree/main/xla/backends/gpu/target_config/specs"
    source = f"{specs}/{page}.txtpb; rates: https://www.nvidia.com/en-us/data-center/{product or name}/"
    return Device(name, "gpu", title, memory, gb * GB, peak, source, slice="1x1x1", gpu=gpu)


# A TPU v4 or v5p chip is one device of two cores; a TPU7x chip is two devices, and has half of it each.
# A GPU's memory is what its driver leaves to programs.
DEVICES = {
    device.name: device
    for device in (
        _tpu("tpu-v4", "TPU v4", 32, 1228, 275, "v4", "v4:2x2x1", chip_config_name="megacore"),
        _tpu("tpu-v5e", "TPU v5e", 16, 819, 197, "v5e", "v5e:2x2"),
        _tpu("tpu-v5p", "TPU v5p", 95, 2765, 459, "v5p", "v5p:2x2x1"),
        _tpu("tpu-v6e", "TPU v6e", 32, 1638, 918, "v6e", "v6e:2x2"),
        _tpu("tpu-7x", "TPU7x, half a chip", 96, 3690, 1153.5, "tpu7x", "tpu7x:2x2x1", 2),
        _gpu(
            "a100", "NVIDIA A100 SXM 80GB", 85_100_068_864, 2039.04, 312, 156, "a100_sxm_80",
            major=8, cores=108, fpus=64, clock=1.41, shared_core=167_936, shared_block=166_912, l2=41_943_040,
        ),
        _gpu(
            "h100", "NVIDIA H100 SXM 80GB", 84_942_979_072, 3352.32, 989.4, 494.7, "h100_sxm",
            major=9, cores=132, fpus=128, clock=1.98, shared_core=233_472, shared_block=232_448,
            l2=52_428_800,
        ),
        _gpu(
            "h200", "NVIDIA H200 SXM 141GB", 151_397_597_184, 4800, 989.4, 494.7, "h200",
            major=9, cores=132, fpus=128, clock=1.98, shared_core=233_472, shared_block=232_448,
            l2=52_428_800,
        ),
        _gpu(
            "b200", "NVIDIA B200 SXM 180GB", 191_514_411_008, 7672.32, 2250, 1125, "b200", "dgx-b200",
            major=10, cores=148, fpus=128, clock=1.965, shared_core=233_472, shared_block=232_448,
            l2=132_644_864,
        ),
    )
}  # fmt: skip


def xla_target(device: Device) -> str:
    """A GPU as XLA's GpuTargetConfig, in text form."""
    gpu = device.gpu
    fields = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49152,
        "shared_memory_per_core": gpu["shared_core"],
        "threads_per_core_limit": 2048,
        "core_count": gpu["cores"],
        "fpus_per_core": gpu["fpus"],
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "memory_bandwidth": int(device.bandwidth),
        "l2_cache_size": gpu["l2"],
        "clock_rate_ghz": gpu["clock"],
        "device_memory_size": device.memory,
        "shared_memory_per_block_optin": gpu["shared_block"],
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
    }
    inside = " ".join(f"{name}: {value}" for name, value in fields.items())
    extension = "NONE" if gpu["major"] < 9 else "ACCELERATED_FEATURES"
    capability = f"cuda_compute_capability {{ major: {gpu['major']} feature_extension: {extension} }}"
    return (
        f"gpu_device_info {{ {inside} {capability} }} "
        'platform_name: "CUDA" '
        "dnn_version_info { major: 9 minor: 12 } runtime_version { major: 13 minor: 0 } "
        f'device_description_str: "{device.title}"'
    )
