"""What accelerators this machine shows, known before jax is imported."""

import glob
import importlib.util
import os
import sys

SHOWN = {  # a container may be given any of several, and not the first
    "/dev/nvidia[0-9]*": "an NVIDIA GPU",
    "/dev/dxg": "a GPU of Windows",
    "/dev/kfd": "an AMD GPU",
    "/dev/accel[0-9]*": "a TPU",
    "/dev/vfio/[0-9]*": "a TPU",
}
COMPILERS = ("libtpu", "jax_cuda13_plugin")  # of the extra `plan`; modules


def shown() -> str | None:
    """The first accelerator that has a device file."""
    return next((name for pattern, name in SHOWN.items() if glob.glob(pattern)), None)


def keep_quiet() -> None:
    """Where no accelerator is, do not ask the compilers of a plan for one: they print a page of errors."""
    if sys.platform == "linux" and shown() is None and any(map(importlib.util.find_spec, COMPILERS)):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
