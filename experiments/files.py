"""Files that are complete or absent, whatever moment the process or the machine stops."""

import contextlib
import errno
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

PARTIAL = ".partial"  # ends the name of a file that is being written
GREATEST = 1e100  # that a number in JSON must be below
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
    """Write text (as UTF-8) or bytes under another name, then put it in the place of `path` in one move.

    Where `path` is a link, in the place of what it leads to; what is there and is no file, as a device or a
    pipe, is written into. Raises OSError that names `path`.
    """
    encoded = content.encode() if isinstance(content, str) else content
    try:
        there = _status(path)
        if there is not None and (not stat.S_ISREG(there.st_mode) or is_printed_into(path)):
            _write_into(path, there, encoded)
        else:
            _replace(Path(os.path.realpath(path)), encoded)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def is_printed_into(path: Path) -> bool:
    """Whether what this process prints goes there, as to /dev/stdout."""
    there = _status(path)
    return there is not None and _printing(there) is not None


def _replace(path: Path, content: bytes) -> None:
    # Of the name its beginning: with what is added it must still be a name.
    temporary = path.with_name(f".{path.name[:40]}.{os.getpid()}{PARTIAL}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # it must not hide what went wrong
            temporary.unlink(missing_ok=True)
    sync(path.parent)


def _write_into(path: Path, there: os.stat_result, content: bytes) -> None:
    # Opened again, a file that is printed into would be written from its start, and then printed over.
    own = _printing(there)
    sys.stdout.flush()
    with open(path if own is None else os.dup(own), "wb") as file:
        file.write(content)


def _printing(there: os.stat_result) -> int | None:
    """The descriptor, of standard output and error, that is the same file."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # it may be closed
            if os.path.samestat(os.fstat(descriptor), there):
                return descriptor
    return None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


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
    """Raises FileNotFoundError, or another OSError, or ValueError that names the file if it is no JSON."""
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would never end
        raise ValueError(f"{path} is no file")
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def parsed(text: str) -> Any:
    """Raises ValueError for what is no JSON, as NaN is none, nested too deeply, or too great a number."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_whole, parse_float=_real)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def printable(value: Any) -> Any:
    """JSON in which a half of a character, as names of files may hold, is its number: no page can hold it."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {printable(name): printable(item) for name, item in value.items()}
    return [printable(item) for item in value] if isinstance(value, list) else value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _whole(digits: str) -> int:
    _real(digits)
    return int(digits)


def _real(digits: str) -> float:
    # Squares of what is greater are infinite, and no picture has room for them.
    if not abs(value := float(digits)) < GREATEST:
        shown = digits if len(digits) <= 24 else f"{digits[:20]}..."
        raise ValueError(f"{shown} is not accepted; numbers are below {GREATEST:g}")
    return value
