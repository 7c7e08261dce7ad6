"""Memory and time of compiled programs: what the compiler says, and what the machine shows."""

import ctypes
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import jax
import numpy as np

SHARE = 0.8  # of the free memory that a program may ask for
EXHAUSTED = "RESOURCE_EXHAUSTED"  # in what XLA says when memory does not suffice, and Orbax when the disk
WARM_UP = 2  # calls that are not timed
OWN_GROUPS, V1 = "/proc/self/cgroup", "/sys/fs/cgroup/memory"
CONTROL_GROUPS = (  # by version 2 and 1: root, controller, limit, usage, and what of it can be given up
    ("/sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"),
    (V1, "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def compiled_memory(compiled: jax.stages.Compiled) -> dict[str, int]:
    """Bytes that the compiler plans: arguments + outputs + temporaries - aliased = total."""
    stats: Any = compiled.memory_analysis()
    parts = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
        "aliased": stats.alias_size_in_bytes,
    }
    total = parts["arguments"] + parts["outputs"] + parts["temporaries"] - parts["aliased"]
    return {**parts, "total": total}


def free_memory(device: Any) -> int | None:
    """Bytes that a jax device can still give (the CPU: the system), None if it does not say."""
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        limit = stats.get("bytes_limit")
        return None if limit is None else limit - stats.get("bytes_in_use", 0)
    available = _field("/proc/meminfo", "MemAvailable")
    return min((value for value in (available, _free_in_container()) if value is not None), default=None)


def shortage(needed: int, device: Any, who: str = "the compiler plans") -> str | None:
    """Why a program that needs so many bytes, says `who`, is not run on the device; None if it fits."""
    free = free_memory(device)
    if free is None or needed <= SHARE * free:
        return None
    return f"{who} {needed} bytes, more than {SHARE:.0%} of the {free} that are free"


def watched(
    run: Callable[[Any], Any], inputs: Iterable[Any], device: Any
) -> tuple[list[float], dict[str, Any]]:
    """Seconds of each call as `times` gives them, and the most memory in use meanwhile: {"bytes", "method"}.

    Devices count for themselves, since their process began. On the CPU it is the highest resident set of the
    whole process, libraries included, reset before where the system allows it.
    """
    reset = device.platform == "cpu" and _reset_resident_peak()
    seconds = times(run, inputs)
    return seconds, _most_memory(device, reset)


def resident_growth(run: Callable[[Any], Any], value: Any, calls: int = 3) -> dict[str, Any]:
    """By how much run(value) raises the resident set of the process above what it was: {"bytes", "method"}.

    The most of some calls: XLA may free a call's memory after its outputs are ready, and what is
    still held then hides the growth of the next. None bytes where the system cannot say.
    """
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return {"bytes": None, "method": "not measured: the C library has no malloc_trim"}
    if not _reset_resident_peak():
        return {"bytes": None, "method": "not measured: the system does not reset the peak"}
    growths = [growth for _ in range(calls) if (growth := _growth(run, value)) is not None]
    method = (
        f"highest resident set (VmHWM) of {calls} warm calls, each less the resident set before it: the most"
    )
    return {"bytes": max(growths, default=None), "method": method}


def _growth(run: Callable[[Any], Any], value: Any) -> int | None:
    before = _settled()
    _reset_resident_peak()
    result = run(value)
    peak = _field("/proc/self/status", "VmHWM")
    del result
    return None if before is None or peak is None else peak - before


def _settled() -> int | None:
    """The resident set once what was freed is back with the system, for which it waits a second at most."""
    size = None
    for _ in range(20):
        ctypes.CDLL(None).malloc_trim(0)
        last, size = size, _field("/proc/self/status", "VmRSS")
        if size is None or (last is not None and size >= last):
            break
        time.sleep(0.05)
    return size


def _most_memory(device: Any, reset: bool) -> dict[str, Any]:
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        method = "device counter peak_bytes_in_use since the process began"
        return {"bytes": stats.get("peak_bytes_in_use"), "method": method}
    method = "highest resident set of the process (VmHWM)"
    method += " during the timed steps" if reset else " since it started"
    return {"bytes": _field("/proc/self/status", "VmHWM"), "method": method}


def times(run: Callable[[Any], Any], inputs: Iterable[Any], warm_up: int = WARM_UP) -> list[float]:
    """Seconds of run(input) for each input but the first `warm_up`, every output waited for.

    Making an input is not timed.
    """
    seconds = []
    for value in inputs:
        start = time.perf_counter()
        jax.block_until_ready(run(value))
        seconds.append(time.perf_counter() - start)
    return seconds[warm_up:]


def spread(seconds: list[float]) -> dict[str, float | int]:
    """Median, lower and upper quartile, and how many."""
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return {"median": float(median), "low": float(low), "high": float(high), "n": len(seconds)}


def _reset_resident_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _free_in_container() -> int | None:
    """The least that this process's control group and those around it leave.

    File pages that can be given up count as free.
    """
    free = []
    for root, controller, limit_file, used_file, cache in CONTROL_GROUPS:
        for folder in _groups(root, controller):
            limit, used = _number(f"{folder}/{limit_file}"), _number(f"{folder}/{used_file}")
            if limit is not None and used is not None:
                free.append(limit - used + (_line(f"{folder}/memory.stat", cache) or 0))
    return min(free, default=None)


def _groups(root: str, controller: str) -> list[Path]:
    """Folders of the own group and of those around it, of which a container shows the root alone."""
    try:
        text = Path(OWN_GROUPS).read_text()
    except OSError:
        text = ""
    own = re.search(rf"^\d+:(?:[^:]*,)?{controller}(?:,[^:]*)?:/(.*)$", text, re.MULTILINE)
    path = PurePosixPath(own[1] if own else "")
    return [Path(root, each) for each in (path, *path.parents)]


def _field(path: str, name: str) -> int | None:
    """Bytes of a "name: 123 kB" line."""
    try:
        match = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def _line(path: str, name: str) -> int | None:
    """The number of a "name 123" line."""
    try:
        match = re.search(rf"^{name} (\d+)$", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
