"""How numbers are written: fixed digits, never a NaN, a dash with a reason instead of a blank."""

from __future__ import annotations

import math
from typing import Any

from pfrnn.study.evaluate.statistics import Interval, Printed

DASH = "–"
# Of numbers that are compared with what another machine computed.
STEADY_DIGITS = 12
SYMBOLS = {
    "consistent": "●",
    "better": "▲",
    "worse": "▼",
    "too noisy to say": "≈",
    "direction only": "→",
    "not comparable": "○",
    "not run": DASH,
    "reference": "◇",
}


def decimals_for(value: float, printed: Printed | None = None) -> int:
    """Digits after the point: three significant ones, at least as many as the paper prints."""
    least = len(printed.text.partition(".")[2]) if printed is not None else 0
    if value == 0 or not math.isfinite(value):
        return max(least, 2)
    return min(6, max(least, 2 - math.floor(math.log10(abs(value))), 1))


def number(value: float | None, decimals: int = 2) -> str:
    """Write a number; a dash when there is none."""
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{value:.{decimals}f}"
    return text.replace("-", "−")


def scored(value: float | None, decimals: int = 2) -> str:
    """Write a number; one that would round to zeros with its power of ten, as 4e-7."""
    if value is None or not 0 < abs(value) < 5 * 10.0 ** -(decimals + 1):
        return number(value, decimals)
    mantissa, _, exponent = f"{value:.0e}".replace("-", "−", int(value < 0)).partition("e")
    return f"{mantissa}e{int(exponent)}".replace("e-", "e−")


def interval_text(interval: Interval | None, decimals: int) -> str:
    """Write an interval as [low, high]; a dash when there is none."""
    if interval is None:
        return DASH
    return f"[{number(interval.low, decimals)}, {number(interval.high, decimals)}]"


def significant(value: float | None, digits: int = 3) -> str:
    """Write a number with so many significant digits, without exponent."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    return number(value, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def seconds_text(seconds: float | None) -> str:
    """Write a duration in the unit that suits it."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plain(value: float | None) -> str:
    """Write a number for a machine, with 12 significant digits; empty when there is none.

    Processors with other vector units add in another order, which moves the 16th digit of a mean:
    a committed table must be the same text on all of them.

    Example:
        >>> plain(0.1 + 0.2), plain(3.0), plain(1e-9), plain(None)
        ('0.3', '3', '1e-09', '')
    """
    if value is None or not math.isfinite(value):
        return ""
    return f"{float(value):.{STEADY_DIGITS}g}"


def steady(data: Any) -> Any:
    """Return plain data with every number rounded as ``plain`` writes it, for a digest.

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
