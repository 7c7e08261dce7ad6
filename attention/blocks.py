"""Default block sizes: how many queries and keys a tile has, where a variant's fields do not say."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax

PLATFORMS = ("cpu", "gpu", "tpu")
_PLATFORM: contextvars.ContextVar[str | None] = contextvars.ContextVar("platform", default=None)

# The whole tile, all heads and rows of the batch, is best so small that a CPU has it in its caches, and so
# large that XLA shares its products among the cores; accelerators want it large. Found by trying on 2 cores;
# correctness never depends on it.
CPU_TILE, OTHER_TILE = 2**21, 2**24
CPU_FULL, OTHER_FULL = (512, 512), (512, 1024)
CPU_BAND, OTHER_BAND = (64, 256), (128, 512)


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
    """Within it, what is traced gets block sizes and layouts of "cpu", "gpu" or "tpu", not those of here.

    For programs that are compiled here and run elsewhere. jax keeps what it has traced: jit a function anew.
    Raises ValueError for any other name.
    """
    if platform not in PLATFORMS:
        raise ValueError(f"platform={platform!r} is not accepted; it must be one of {', '.join(PLATFORMS)}")
    before = _PLATFORM.set(platform)
    try:
        yield
    finally:
        _PLATFORM.reset(before)


def platform() -> str:
    """ "cpu", "gpu" or "tpu": what is traced now is for it."""
    return _PLATFORM.get() or jax.default_backend()


def full_blocks(rows: int, query_length: int, key_length: int) -> tuple[int, int]:
    """Queries and keys of a tile when every query sees every key; `rows` is batch times heads."""
    on_cpu = platform() == "cpu"
    query_block, key_block = CPU_FULL if on_cpu else OTHER_FULL
    while on_cpu and rows * query_block * key_block > CPU_TILE and key_block > 64:
        query_block, key_block = (
            (query_block, key_block // 2) if key_block >= query_block else (query_block // 2, key_block)
        )
    return _at_most(query_block, query_length), _at_most(key_block, key_length)


def band_block(rows: int, width: int, query_length: int) -> int:
    """Queries of a tile when each sees `width` keys: half the band wastes a third of the products."""
    on_cpu = platform() == "cpu"
    shortest, longest = CPU_BAND if on_cpu else OTHER_BAND
    block = min(max(width // 2, shortest), longest)
    while on_cpu and rows * block * (block + width) > CPU_TILE and block > 16:
        block //= 2
    return _at_most(block, query_length)


def blocks_at_once(weights: int) -> int:
    """How many blocks a loop takes at a turn, when each has so many weights over batch and heads."""
    return max(1, (CPU_TILE if platform() == "cpu" else OTHER_TILE) // weights)


def _at_most(block: int, length: int) -> int:
    return max(1, min(block, length))
