"""The verdict on one printed number; the rules are fixed in docs/statistics.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pfrnn.study.evaluate.statistics import (
    Interval,
    Printed,
    Scale,
    narrow_enough,
    prediction_interval,
)

REDUCED_TIERS = ("smoke", "quick", "quick_all")
UNPUBLISHED_MAPS = ("maze18", "maze27")

CONSISTENT = "consistent"
NOISY = "too noisy to say"
BETTER = "better"
WORSE = "worse"
DIRECTION = "direction only"
NOT_COMPARABLE = "not comparable"
NOT_RUN = "not run"
REFERENCE = "reference"
WORDS = (CONSISTENT, BETTER, WORSE, NOISY, DIRECTION, NOT_COMPARABLE, NOT_RUN, REFERENCE)


class Verdict(NamedTuple):
    """A verdict with its reason.

    Attributes:
        word: one of ``WORDS``.
        reason: why, in words; empty where the word says all.
        interval: prediction interval for one further draw, in the paper's unit.
    """

    word: str
    reason: str = ""
    interval: Interval | None = None

    @property
    def text(self) -> str:
        """Word and reason, as shown."""
        return f"{self.word} ({self.reason})" if self.reason else self.word


def obstacle(tier: str, dataset: str, state: str) -> Verdict | None:
    """Return the verdict that rules out a comparison before any number is looked at, or None."""
    if tier in REDUCED_TIERS:
        return Verdict(NOT_COMPARABLE, "reduced tier")
    if dataset in UNPUBLISHED_MAPS:
        return Verdict(DIRECTION, "map not published")
    if state == "excerpt":
        return Verdict(DIRECTION, "data are an excerpt")
    if state == "simulated" and not dataset.startswith("maze"):
        return Verdict(NOT_COMPARABLE, "simulated in place of the real data")
    return None


def judge(
    printed: Printed,
    values: Sequence[float],
    sampling_errors: Sequence[float],
    scale: Scale,
    n_test: int,
    confidence: float = 0.95,
) -> Verdict:
    """Compare a printed number with the prediction interval for one further draw.

    Args:
        printed: the paper's number.
        values: ours, one a repetition, finite, in the paper's unit.
        sampling_errors: of each value, from the finite test set.
        scale: ``error`` or ``accuracy``.
        n_test: test items.
        confidence: of the prediction interval.
    """
    if len(values) < 2:
        return Verdict(NOT_COMPARABLE, "one repetition")
    if n_test < 1:
        return Verdict(NOT_COMPARABLE, "number of test items unknown")
    if not all(math.isfinite(error) for error in sampling_errors):
        return Verdict(NOT_COMPARABLE, "no sampling error of the test set")
    if scale == "error" and min(values) <= 0:
        return Verdict(NOT_COMPARABLE, "an error of zero has no logarithm")
    interval = prediction_interval(values, sampling_errors, scale, n_test, printed, confidence)
    if interval is None:
        return Verdict(NOT_COMPARABLE, "one repetition")
    if printed.value in interval:
        narrow = narrow_enough(interval, scale)
        return Verdict(CONSISTENT if narrow else NOISY, "", interval)
    ours_larger = printed.value < interval.low
    better = ours_larger if scale == "accuracy" else not ours_larger
    return Verdict(BETTER if better else WORSE, "", interval)


def direction(
    reason: str,
    scale: Scale,
    ours: float,
    ours_partner: float | None,
    printed: float,
    printed_partner: float | None,
    partner: str,
) -> Verdict:
    """Say whether ours and the paper order two methods alike, where values can't be compared."""
    if ours_partner is None or printed_partner is None:
        return Verdict(DIRECTION, f"{reason}; no partner to compare with")
    sign = -1.0 if scale == "error" else 1.0
    mine, theirs = sign * (ours - ours_partner), sign * (printed - printed_partner)
    if theirs == 0:
        said = f"the paper ties with {partner}"
    else:
        said = f"{'same' if mine * theirs > 0 else 'opposite'} order against {partner}"
    return Verdict(DIRECTION, f"{said}; {reason}")
