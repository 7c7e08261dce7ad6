"""What accelerators this machine shows, known before jax is imported."""

import importlib.util
import os
import sys
from pathlib import Path

SHOWN = {
    "/dev/nvidia0": "an NVIDIA GPU",
    "/dev/dxg": "a GPU of Windows",
    "/dev/kfd": "an AMD GPU",
    "/dev/accel0": "a TPU",
    "/dev/vfio/0": "a TPU",
}
COMPILERS = ("libtpu", "jax_cuda13_plugin")  # of the extra `plan`; modules


def shown() -> str | None:
    """The first accelerator that has a device file."""
    return next((name for path, name in SHOWN.items() if Path(path).exists()), None)


def keep_quiet() -> None:
    """Where no accelerator is, do not ask the compilers of a plan for one: they print a page of errors."""
    if sys.platform == "linux" and shown() is None and any(map(importlib.util.find_spec, COMPILERS)):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
