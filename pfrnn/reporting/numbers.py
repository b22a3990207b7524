"""How numbers are written: fixed digits, never a NaN, a dash with a reason instead of a blank."""

from __future__ import annotations

import math

from pfrnn.evaluation.statistics import Interval, Printed

DASH = "–"
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
    """Write a number for a machine: the shortest text that reads back equal; empty when none."""
    if value is None or not math.isfinite(value):
        return ""
    return repr(float(value))
