"""What a run leaves: `record.json` (the truth about it) and a `metrics.jsonl` for each seed (its course)."""

import errno
import json
import math
import os
import time
from pathlib import Path
from typing import Any

from experiments import files, shape

RECORD = "record.json"
LOOK = "look"  # the split of a line of metrics that says what a diagnosis saw
SCHEMA = 2  # of the records that this code writes and compares

Record = dict[str, Any]

# Outcomes of a seed, or of a run.
FINISHED = "finished"
DIVERGED = "diverged"
INTERRUPTED = "interrupted"
OUT_OF_MEMORY = "out of memory"
OUT_OF_MEMORY_COMPILED = "out of memory (compiled)"
UNFINISHED = "unfinished"  # running, or killed
FAILED = "failed"

UNDECIDED = (INTERRUPTED, UNFINISHED)

# Where a record holds what differs between two runs of the same config; all else is bitwise the same.
TIMINGS = ("sessions", "speed", "memory.measured", "seeds.*.timing", "seeds.*.last_good_step")


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Put the record in its folder, in one move. A number that is not finite becomes null, and is listed."""
    files.write_json(folder / RECORD, plain(record))


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a run's folder, or None. Raises ValueError, naming the file, if it is not one."""
    try:
        record = files.read_json(folder / RECORD)
    except FileNotFoundError:
        return None
    if not isinstance(record, dict):
        raise ValueError(f"{folder / RECORD} is not a record")
    # Other schemas are not looked into.
    if record.get("schema") == SCHEMA and (wrong := shape.wrong_record(record)):
        raise ValueError(f"{folder / RECORD} is not a record: {wrong}")
    return record


def folder_of(path: Path) -> Path:
    """The folder of a run, which may be named by its record."""
    return path.parent if path.name == RECORD else path


def demanded(path: Path) -> Record:
    """The record of a run, by its folder or file. Raises OSError or ValueError, naming it, without one."""
    folder = folder_of(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{path} is no run: a run is a folder, or its {RECORD}")
    record = read_record(folder)
    if record is None:
        raise ValueError(f"there is no {RECORD} in {folder}")
    if record.get("schema") != SCHEMA:
        raise ValueError(f"{folder} has a record of schema {record.get('schema')}, not {SCHEMA}")
    return files.printable(record)


def find(workdir: Path) -> tuple[list[tuple[Path, dict[str, Any]]], list[str]]:
    """Every run's folder in `workdir` with its record, and a line for each one that cannot be read."""
    found, complaints = [], []
    folders = sorted(workdir.glob("*/"))  # a link that leads nowhere would be left out with its name
    for path in (folder / RECORD for folder in folders if os.path.lexists(folder / RECORD)):
        try:
            record = read_record(path.parent)
        except (OSError, ValueError) as error:
            complaints.append(str(error))
        else:
            if record is not None:
                found.append((path.parent, files.printable(record)))
    return found, complaints


def without_timings(record: dict[str, Any]) -> dict[str, Any]:
    """The part of a record that is bitwise the same however often the run was interrupted."""
    result = record
    for path in record["timings"]:
        result = _without(result, path.split("."))
    return result


def _without(tree: Any, path: list[str]) -> Any:
    name, *rest = path
    if not isinstance(tree, dict):
        return tree
    chosen = tree.keys() if name == "*" else {name}
    if not rest:
        return {key: value for key, value in tree.items() if key not in chosen}
    return {key: _without(value, rest) if key in chosen else value for key, value in tree.items()}


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """As JSON holds it: numbers of numpy and jax as Python's, tuples as lists, keys as strings.

    A number that is not finite becomes null; "non_finite" then lists where, and what it was.
    """
    strange: dict[str, str] = {}
    result = _plain(value, "", strange)
    return result | {"non_finite": strange} if strange else result


def _plain(value: Any, where: str, strange: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            str(key): _plain(item, f"{where}.{key}" if where else str(key), strange)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}.{index}", strange) for index, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int):
        return value
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float) and not math.isfinite(number):
        strange[where] = str(number)
        return None
    return number


def append(path: Path, line: dict[str, Any]) -> None:
    """Add one line to a metrics file. It has a "step" and a "split"."""
    content = json.dumps(plain(line), allow_nan=False) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        encoded = content.encode()
        written = os.write(descriptor, encoded)
        if written < len(encoded):  # the disk is full: nothing may follow half a line
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise OSError(errno.ENOSPC, "no room for a line", str(path))
    finally:
        os.close(descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file, [] if there is none. A line that was cut short at the end is left out.

    Raises ValueError, naming file and line, for any other that is not one.
    """
    lines, error = _read(path)
    if error:
        raise ValueError(error)
    return lines


def rewind(path: Path, last: dict[str, int], count: int) -> list[str]:
    """Take back the lines of each split after its last step: a run that resumes there writes them again.

    What is wrong, a phrase for each: `count` lines should stay; and if a line is damaged, it and those after
    it are put into another file.
    """
    lines, error = _read(path)
    complaints = []
    if error:
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        files.write(aside, path.read_bytes())
        complaints.append(f"{error}; lines before it are kept, all of them are in {aside.name}")
    kept = [line for line in lines if line["step"] <= last.get(line["split"], -1)]
    if len(kept) != count:
        complaints.append(f"{path} has {len(kept)} lines up to there, and had {count}: its course has gaps")
    if path.exists():
        files.write(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept))
    return complaints


def _read(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """The lines up to the first that is none, and what is wrong with that one."""
    if not path.exists():
        return [], None
    parsed = []
    # Whole lines end with a newline.
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1], 1):
        try:
            value = files.parsed(line)
        except ValueError as error:
            return parsed, f"{path}:{number} is not JSON: {error}"
        if shape.wrong(value, {"step": int, "split": str}):
            return parsed, f"{path}:{number} has no step or no split"
        parsed.append(value)
    return parsed, None
