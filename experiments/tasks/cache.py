"""Generated data that takes long to make, kept between runs."""

import contextlib
import io
import os
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments import files

VARIABLE = "ATTENTION_BENCH_CACHE"


def folder() -> Path:
    """$ATTENTION_BENCH_CACHE, or attention-bench in the user's cache folder."""
    own = os.environ.get(VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own) if own else Path(base) / "attention-bench"


def arrays(name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What `make` gave when it was first asked for under this name.

    A file that cannot be read is made anew, and where none can be written `make` is simply called each time.
    """
    path = folder() / f"{name}.npz"
    unreadable = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)
    with contextlib.suppress(*unreadable), np.load(path) as kept:
        return {key: kept[key] for key in kept.files}
    print(f"making {name}, to be kept in {path.parent}", file=sys.stderr, flush=True)
    made = make()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **made)  # pyright: ignore[reportArgumentType]
        files.write(path, buffer.getvalue())
    return made
