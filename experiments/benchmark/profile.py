"""Where the time of a compiled jax program goes, by a trace of it."""

import re
import tempfile
from pathlib import Path
from typing import Any

import jax

KINDS = PRODUCTS, EXPONENTIALS, OTHER = "products", "exponentials", "other"
CONTAINERS = ("while", "conditional", "call")  # their time is that of what is in them


def spent(compiled: jax.stages.Compiled, *arguments: Any) -> dict[str, float]:
    """Seconds in products, in what has exponentials and in everything else, of one warm call.

    How long each operation was at work, on however many threads: more than the call takes, where several
    are at once. All zero where the device's trace does not name operations.
    """
    kinds = by_operation(compiled.as_text() or "")
    jax.block_until_ready(compiled(*arguments))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(compiled(*arguments))
        files = [*Path(folder).rglob("*.xplane.pb")]
        traces = [jax.profiler.ProfileData.from_file(str(file)) for file in files]
    seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    lines = [line for trace in traces for plane in trace.planes for line in plane.lines]
    for event in (event for line in lines for event in line.events):
        if kind := kinds.get(str(dict(event.stats).get("hlo_op"))):
            seconds[kind] += event.duration_ns / 1e9
    return seconds


def by_operation(text: str) -> dict[str, str]:
    """The kind of every operation of a program's text, by its name; none of those that contain others."""
    bodies: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", text):
        if named := re.match(r"(?:ENTRY )?%([\w.-]+) \(", block):
            bodies[named[1]] = block
    kinds = {}
    for body in bodies.values():
        for line in body.splitlines():
            found = re.match(r"\s+(?:ROOT )?%([\w.-]+) = .*? ([\w-]+)\(", line)
            if found and found[2] not in CONTAINERS:
                called = re.search(r"calls=%([\w.-]+)", line)
                kinds[found[1]] = _kind(line + (bodies.get(called[1], "") if called else ""))
    return kinds


def _kind(text: str) -> str:
    if " dot(" in text:
        return PRODUCTS
    return EXPONENTIALS if " exponential(" in text else OTHER
