"""Fonts of this machine that have the characters of a picture."""

import functools
from collections.abc import Iterable

from matplotlib import font_manager, ft2font

USUAL, LAST_RESORT = "DejaVu Sans", "Last Resort"  # which matplotlib brings


def families(text: str) -> list[str]:
    """The usual font, and those that are there for what it has not."""
    wanted, chosen = _beyond(text, [USUAL]), [USUAL]
    while wanted:
        best = max(sorted(_installed()), key=lambda name: len(wanted & _characters(name)), default=USUAL)
        if not wanted & _characters(best):
            break
        chosen.append(best)
        wanted -= _characters(best)
    return chosen


def drawable(text: str) -> str:
    """The text, with the number of each character in place of those that no font here has."""
    missing = _beyond(text, families(text))
    return "".join(f"U+{ord(c):04X}" if ord(c) in missing else c for c in text)


def _beyond(text: str, names: Iterable[str]) -> set[int]:
    return {ord(c) for c in text if not c.isspace()} - set().union(*map(_characters, names))


@functools.cache
def _installed() -> dict[str, str]:
    """The file of each font, by name; not of one that has a box for every character."""
    found = font_manager.fontManager.ttflist
    return {font.name: font.fname for font in reversed(found) if not font.name.startswith(LAST_RESORT)}


@functools.cache
def _characters(name: str) -> frozenset[int]:
    try:
        return frozenset(ft2font.FT2Font(_installed()[name]).get_charmap())
    except (OSError, RuntimeError, KeyError):  # matplotlib's list may be older than the fonts
        return frozenset()
