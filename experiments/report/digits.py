"""A mean and its uncertainty with as many digits as they are worth."""

import math
from typing import Any

ALONE = 4  # significant digits of a number that has no uncertainty
OF_UNCERTAINTY = 2  # significant digits; the mean ends at the same decimal place


def decimals(half_width: float) -> int:
    """Decimal places of a mean with this uncertainty, above 0."""
    # Rounded first: 0.0996 is 0.10.
    exponent = int(f"{half_width:.{OF_UNCERTAINTY - 1}e}".partition("e")[2])
    return max(0, OF_UNCERTAINTY - 1 - exponent)


def shown(mean: float, half_width: float | None) -> tuple[str, str | None]:
    """Mean and half-width as text; a half-width of 0, of seeds that all agree, has no digits to go by."""
    if not half_width or not math.isfinite(half_width):
        return f"{mean:#.{ALONE}g}", "0" if half_width == 0 else None
    places = decimals(half_width)
    return f"{mean:.{places}f}", f"{half_width:.{places}f}"


def text(score: dict[str, Any]) -> str:
    """An `interval` as "mean ± half-width", or the mean alone."""
    return " ± ".join(filter(None, shown(score["mean"], score["half_width"])))
