"""How numbers are written: fixed digits, never a NaN, a dash where there is none."""

from __future__ import annotations

import math
from typing import Any

DASH = "–"
STEADY_DIGITS = 12


def known(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def decimals_for(value: float, paper: str = "") -> int:
    """Digits after the point: three significant ones, at least as many as the paper prints."""
    least = len(paper.partition(".")[2])
    if not known(value) or value == 0:
        return max(least, 2)
    return min(6, max(least, 2 - math.floor(math.log10(abs(value))), 1))


def number(value: float | None, decimals: int = 2) -> str:
    """Write a number; one that would round to zeros with its power of ten, as 4e−7."""
    if value is None or not known(value):
        return DASH
    if 0 < abs(value) < 5 * 10.0 ** -(decimals + 1):
        mantissa, _, exponent = f"{value:.0e}".partition("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = f"{value:.{decimals}f}"
    return text.replace("-", "−")


def interval_text(low: float, high: float, decimals: int) -> str:
    """Write an interval as [low, high]; empty when there is none."""
    return f"[{number(low, decimals)}, {number(high, decimals)}]" if known(low) else ""


def with_interval(mean: float | None, low: float, high: float, sign: bool = False) -> str:
    """Write a mean with its interval, if it has one."""
    if mean is None or not known(mean):
        return DASH
    digits = decimals_for(mean)
    text = ("+" if sign and mean > 0 else "") + number(mean, digits)
    return f"{text} {interval_text(low, high, digits)}".strip()


def significant(value: float | None, digits: int = 3) -> str:
    """Write a number with so many significant digits, without exponent."""
    if value is None or not known(value):
        return DASH
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}".replace("-", "−")


def counted(value: Any) -> str:
    """Write a count with separators."""
    return f"{int(value):,}" if known(value) else "not recorded"


def seconds_text(seconds: float | None) -> str:
    """Write a duration in the unit that suits it."""
    if seconds is None or not known(seconds):
        return DASH
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def steady(data: Any) -> Any:
    """Return plain data with 12 significant digits a number.

    The 16th digit of a mean depends on the processor; a digest or a committed table must not.

    Example:
        >>> steady({"x": [0.1 + 0.2, 1, "text"]})
        {'x': [0.3, 1, 'text']}
    """
    if isinstance(data, float):
        return float(f"{data:.{STEADY_DIGITS}g}")
    if isinstance(data, dict):
        return {key: steady(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [steady(value) for value in data]
    return data
