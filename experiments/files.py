"""Files that are complete or absent, whatever moment the process or the machine stops."""

import errno
import json
import os
from pathlib import Path
from typing import Any

PARTIAL = ".partial"  # ends the name of a file that is being written
LEAST_FILES = 100  # that must be possible before several are written


def sync(path: Path) -> None:
    """Bring a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_room(folder: Path, needed: int) -> None:
    """Raises OSError (ENOSPC) if the disk has not that many bytes free, or hardly a name for a file."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        raise OSError(errno.ENOSPC, f"{needed} bytes are wanted and {free} are free", str(folder))
    if disk.f_files and disk.f_favail < LEAST_FILES:  # file systems without a limit say 0
        raise OSError(errno.ENOSPC, f"{disk.f_favail} more files are possible", str(folder))


def write(path: Path, content: str | bytes) -> None:
    """Write text (as UTF-8) or bytes under another name, then put it in the place of `path` in one move."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def sweep(folder: Path) -> None:
    """Remove what writers that were killed have left, anywhere in a folder in which nobody writes now."""
    for leftover in folder.rglob(f".*{PARTIAL}"):
        leftover.unlink()


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write JSON that any parser reads, on one line if `indent` is None.

    Raises ValueError for a NaN or an infinity, TypeError for what JSON does not know; `path` stays as it was.
    """
    write(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Raises FileNotFoundError, or ValueError that names the file if it is no JSON."""
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def parsed(text: str) -> Any:
    """Raises ValueError for what is no JSON, as NaN is none, or nested too deeply."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
