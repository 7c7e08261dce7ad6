"""`--longest`: the longest sequences that train on a target, by compiling and not by extrapolation."""

import math
from collections.abc import Callable
from typing import Any

from experiments import measure
from experiments.config.checks import UsageError
from experiments.model import registry
from experiments.plan import pool
from experiments.plan.worker import FAILED

STEPS = 8  # lengths between one power of two and the next that are told apart
MOST = 2**24  # tokens; what trains there is said to train beyond
LEAP = 16  # times the length before, at most: what is known of memory is known of shorter lengths


def grid(index: int) -> int:
    """The lengths that are tried: 8, 9, ... 15, then twice these, and so on."""
    return (STEPS + index % STEPS) << (index // STEPS)


def position(length: float) -> int:
    """Of the longest length of the grid that is not above."""
    power = max(0, math.floor(math.log2(length / STEPS)))
    return STEPS * power + math.floor(length / 2**power) - STEPS


def search(total: Callable[[int], int | None], room: float, start: int) -> dict[str, Any]:
    """{"length": the longest that fits, "beyond": the next, which does not, "tried": {length: bytes}}.

    `total(length)` is how many bytes are planned, None if the compiler finds no room. `length` is None if not
    even 8 tokens fit, `beyond` is None if MOST tokens do.
    """
    tried: dict[int, int | None] = {}
    low, high = -1, position(MOST) + 1
    at = min(max(position(start), 0), high - 1)
    while high - low > 1:
        length = grid(at)
        tried[length] = total(length)
        needed = tried[length]
        low, high = (at, high) if needed is not None and needed <= room else (low, at)
        at = position(_guess(tried, room))
        if not low < at < high:  # it was wrong, or is the neighbour of what is known
            at = low + 1 if at == low else high - 1 if needed and at == high else (low + high) // 2
    return {
        "length": None if low < 0 else grid(low),
        "beyond": None if high > position(MOST) else grid(high),
        "tried": tried,
    }


def _guess(tried: dict[int, int | None], room: float) -> float:
    """Where the bytes would be `room`, by a power of the length through the two longest that are known."""
    known = sorted((length, needed) for length, needed in tried.items() if needed)
    if not known:
        return min(tried) / 2
    length, needed = known[-1]
    slope = 1.0
    if len(known) > 1:
        before, less = known[-2]
        slope = max(math.log(needed / less) / math.log(length / before), 0.5)
    return min(length * (room / needed) ** (1 / slope), LEAP * length)


def of_target(ask: pool.Ask, capacity: int, start: int, shares: int = 1) -> dict[str, Any]:
    """The longest sequence that trains on a target, in the share of its memory that a run may take.

    A length counts by what needs more, the training step or the forward pass of an evaluation.
    Lengths are those of the grid times `shares`, into which the target's devices divide a sequence. "failed"
    are lengths at which the compiler failed: whether they fit is not known, and `length` is the most that is.
    "refused" are those that the config's task or model does not accept.
    """
    reasons, failed, refused = [], [], []

    def total(share: int) -> int | None:
        length = share * shares
        try:
            answer = ask([f"--config.task.length={length}"])
        except UsageError as error:
            reasons.append(f"{length}: {error}")
            refused.append(length)
            return None
        if "memory" in answer:
            return pool.needed(answer)
        reasons.append(f"{length}: {answer['outcome']}: {answer['reason']}")
        if answer["outcome"] == FAILED:
            failed.append(length)
        return None

    found = search(total, measure.SHARE * capacity, start // shares)
    whole = {name: found[name] and found[name] * shares for name in ("length", "beyond")}
    tried = {share * shares: needed for share, needed in found["tried"].items()}
    return {**whole, "tried": tried, "reasons": reasons, "failed": failed, "refused": refused}


def overrides_of(variant: str, chosen: str, overrides: list[str]) -> list[str]:
    """The command line for another variant than the one that is chosen: with its own defaults."""
    if variant == chosen:
        return overrides
    kept = [each for each in overrides if not each.startswith("--config.attention.")]
    return [*kept, f"--config.attention.name={variant}"]


def variants(chosen: str, which: str) -> list[str]:
    """The chosen variant, or all of them."""
    return [chosen] if which == "this" else list(registry.names())
