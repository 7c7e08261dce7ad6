"""Checkpoints that are complete or absent, and verified when read. The only file that imports Orbax.

    <folder>/00000200/state/          the arrays, one flat dictionary, by Orbax
    <folder>/00000200/arrays.json     their shapes and dtypes
    <folder>/00000200/progress.json   what else resuming needs
    <folder>/00000200/manifest.json   sha256 of every other file
    <folder>/00000200.aside/          a checkpoint that could not be used; never deleted

`progress["needs"]` lists the steps whose checkpoints this one cannot do without (the best so far). They are
kept as long as it is, and it is not used without them.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from experiments import files

SLACK = 2**20  # bytes that a checkpoint may need beside its arrays
KEEP = 2  # the newest, and one to fall back on
Progress = dict[str, Any]
# What reading a damaged checkpoint may raise. Any other error is not its fault: it may be sound.
DAMAGE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError)


class DamagedError(Exception):
    """A checkpoint is not what was saved."""


class StructureError(ValueError):
    """A sound checkpoint does not have the arrays that are asked for."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a checkpoint held."""

    step: int
    state: Any
    progress: Progress


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, ascending."""
    try:
        names = [name for name in os.listdir(folder) if name.isascii() and name.isdigit()]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if _path(folder, int(name)).name == name)


def save(folder: Path, step: int, state: Any, progress: Progress) -> None:
    """Save a pytree of arrays and JSON; then forget older checkpoints that nothing needs.

    Raises FileExistsError if the step is saved already (a checkpoint is never written over), and OSError if
    there is no room for it.
    """
    target = _path(folder, step)
    if target.exists():
        raise FileExistsError(f"step {step} is saved already: {target}")
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".saving-*"):
        shutil.rmtree(leftover)
    arrays = _flat(state)
    files.check_room(folder, 2 * sum(leaf.nbytes for leaf in arrays.values()) + SLACK)
    partial = folder.absolute() / f".saving-{target.name}"
    partial.mkdir()
    with _without_tracebacks(), ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(partial / "state", args=ocp.args.StandardSave(arrays))
    files.write_json(partial / "arrays.json", _describe(arrays))
    files.write_json(partial / "progress.json", progress)
    files.write_json(partial / "manifest.json", _hashes(partial))
    for path in (*partial.rglob("*"), partial):
        files.sync(path)
    os.rename(partial, target)
    files.sync(folder)
    _forget(folder)


def restore(folder: Path, step: int, abstract_state: Any) -> Restored:
    """Read one checkpoint into the structure of `abstract_state` (its leaves: shape, dtype, maybe sharding).

    Raises DamagedError if a file is missing, added or changed, StructureError if names, shapes or dtypes
    of the saved arrays differ from those of `abstract_state`, and OSError if it cannot be read now.
    """
    path = _path(folder, step).absolute()
    progress = _verified_progress(path)
    targets = _flat(abstract_state)
    _check_structure(path, _describe(targets))
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        arguments = ocp.args.StandardRestore({name: _target(leaf) for name, leaf in targets.items()})
        arrays = checkpointer.restore(path / "state", args=arguments)
    state = jax.tree.unflatten(jax.tree.structure(abstract_state), [arrays[name] for name in targets])
    return Restored(step, state, progress)


def restore_latest(folder: Path, abstract_state: Any) -> tuple[Restored | None, list[str]]:
    """The newest checkpoint that is sound and whose needs are, and a line for each one passed over.

    Those passed over are set aside. None if no checkpoint is left. Raises StructureError, and OSError, as
    `restore` does: what cannot be read now is not set aside.
    """
    complaints = []
    for step in reversed(steps(folder)):
        try:
            for needed in _verified_progress(_path(folder, step)).get("needs", []):
                _verified_progress(_path(folder, needed))
            return restore(folder, step, abstract_state), complaints
        except DamagedError as error:
            complaints.append(f"checkpoint of step {step} is set aside: {error}")
            _set_aside(_path(folder, step))
    return None, complaints


def digest(tree: Any) -> str:
    """sha256 of the names, shapes, dtypes and bytes of all arrays in a pytree."""
    total = hashlib.sha256()
    for name, leaf in _flat(tree).items():
        array = np.asarray(jax.device_get(leaf))
        total.update(f"{name} {array.shape} {array.dtype}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


@contextlib.contextmanager
def _without_tracebacks() -> Iterator[None]:
    """What goes wrong in Orbax's threads is logged, and then raised: once is enough.

    After a failure they stay silent: what is left of it is logged whenever it happens to be collected.
    """
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def _path(folder: Path, step: int) -> Path:
    return folder / f"{step:08d}"


def _flat(tree: Any) -> dict[str, Any]:
    # Orbax refuses empty branches, and rebuilds named tuples as dictionaries: it is given neither.
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _describe(arrays: dict[str, Any]) -> dict[str, str]:
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in arrays.items()}


def _target(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(leaf, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _hashes(folder: Path) -> dict[str, str]:
    # Unlike rglob, it raises where a folder cannot be read.
    walked = os.walk(folder, onerror=_raise)
    inside = sorted(Path(at, name) for at, _, names in walked for name in names)
    return {str(path.relative_to(folder)): _hash(path) for path in inside if path != folder / "manifest.json"}


def _raise(error: OSError) -> None:
    raise error


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verified_progress(path: Path) -> Progress:
    try:
        expected = files.read_json(path / "manifest.json")
        found = _hashes(path)
        progress = files.read_json(path / "progress.json")
    except DAMAGE as error:
        raise DamagedError(str(error)) from error
    if not isinstance(expected, dict):
        raise DamagedError(f"{path / 'manifest.json'} is no manifest")
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise DamagedError(f"{path / wrong[0]} is not what was saved ({len(wrong)} of {len(expected)} files)")
    return progress


def _check_structure(path: Path, expected: dict[str, str]) -> None:
    # Orbax would cast to another dtype without a word.
    saved = files.read_json(path / "arrays.json")
    for name in sorted(saved.keys() | expected.keys()):
        if saved.get(name) != expected.get(name):
            raise StructureError(
                f"{path} holds {name} as {saved.get(name, 'nothing')}, not {expected.get(name, 'nothing')}"
            )


def _set_aside(path: Path) -> None:
    names = (f"{path.name}.aside" + (f"-{n}" if n else "") for n in itertools.count())
    os.rename(path, next(path.with_name(name) for name in names if not path.with_name(name).exists()))
    files.sync(path.parent)


def _forget(folder: Path) -> None:
    kept = set(steps(folder)[-KEEP:])
    for step in tuple(kept):
        with contextlib.suppress(*DAMAGE):  # a damaged one is restore_latest's affair
            kept.update(files.read_json(_path(folder, step) / "progress.json").get("needs", []))
    for step in steps(folder):
        if step not in kept:
            # A half-deleted checkpoint must not look like one.
            doomed = folder / f".saving-{step:08d}"
            os.rename(_path(folder, step), doomed)
            shutil.rmtree(doomed)
