"""One cell, a contender at a length: measured in a process of its own, and kept while it is true."""

import json
import subprocess
import sys
from typing import Any

import jax
import numpy as np

import attention
from experiments import provenance
from experiments.benchmark import inputs, jax_side, peers, torch_side

COMPARED_UP_TO = 2048  # length at which a peer's numbers are held against ours
NOT_INSTALLED = "not installed"

Cell = dict[str, Any]


def contenders() -> tuple[str, ...]:
    ours = dict.fromkeys((*attention.names(), *(peer.variant for peer in peers.PEERS.values())))
    return (*ours, *peers.PEERS)


def identity(name: str) -> Cell:
    """What a cell says beside its numbers: of our attention, and for a peer of what it is."""
    known: Cell = {"attention_sha256": provenance.code_sha256(("attention",))}
    if name in contenders() and peers.two_sided(name):
        known["causal"] = False
    if name in peers.PEERS:
        known |= {"settings": peers.PEERS[name].settings, "packages": peers.versions(name)}
    return known


def measure_cell(name: str, length: int) -> Cell:
    """Time and memory of forward and gradient, in this process; how far a peer's numbers are from ours."""
    gathered = provenance.gather()
    threads = gathered["machine"]["usable_cores"]
    cell = {"name": name, "length": length, **identity(name), "threads": threads, "provenance": gathered}
    side = torch_side if cell.get("packages") else jax_side
    cell |= side.measure_parts(name, length)
    if name in peers.PEERS and length <= COMPARED_UP_TO:
        cell["difference"] = difference(name, length)
    return cell


def difference(name: str, length: int) -> dict[str, float]:
    """The largest difference from the variant that a peer is held against, in each part that it has."""
    peer = peers.PEERS[name]
    side = torch_side if peer.packages else jax_side
    found = {}
    for part in inputs.COUNTS:
        try:
            theirs = side.outputs(name, length, part)
        except NotImplementedError:
            continue
        ours = jax.device_get(jax_side.outputs(peer.variant, length, part))
        found[part] = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
    return found


def run_cell(name: str, length: int) -> Cell:
    """`measure_cell` in a process of its own; what ends it is the outcome."""
    if lacking := peers.missing(name):
        reason = f"{', '.join(lacking)}: {peers.INSTALL}"
        return _lost(name, length, NOT_INSTALLED, reason)
    command = [sys.executable, "-m", "experiments.benchmark", "--cell", name, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return _lost(name, length, "failed", last_line(done))
    return json.loads(done.stdout.splitlines()[-1])  # compilers of others may write before it


def _lost(name: str, length: int, outcome: str, reason: str) -> Cell:
    part = {"outcome": outcome, "reason": reason}
    return {"name": name, "length": length, **identity(name), "forward": part, "gradient": part}


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Why a process failed, in one line."""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def still_true(cells: list[Cell], here: dict[str, Any]) -> list[Cell]:
    """Cells that would be measured alike now; none that failed.

    Versions and machine are the same, and so is our attention, or a peer's packages and settings. A peer
    that was held against ours depends on both.
    """
    kept = []
    for cell in cells:
        before = cell.get("provenance")
        changed = provenance.differences(before, here) if before else {}
        changed.pop(provenance.CODE, None)
        now = identity(cell["name"])
        if cell.get("packages") and "difference" not in cell:
            now.pop("attention_sha256")
        if before and not changed and all(cell.get(key) == value for key, value in now.items()):
            kept.append(cell)
    return kept
