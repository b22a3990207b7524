"""The verdict on one printed number; docs/statistics.md has the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pfrnn.study.evaluate.statistics import Printed, Scale, narrow_enough, prediction_interval
from pfrnn.study.report.numbers import DASH

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
# Word -> symbol in text, in LaTeX, and colour of the page.
SIGNS = {
    CONSISTENT: ("●", r"$\bullet$", "consistent"),
    BETTER: ("▲", r"$\blacktriangle$", "better"),
    WORSE: ("▼", r"$\blacktriangledown$", "worse"),
    NOISY: ("≈", r"$\approx$", "noisy"),
    DIRECTION: ("→", r"$\rightarrow$", "noisy"),
    NOT_COMPARABLE: ("○", r"$\circ$", "noisy"),
    NOT_RUN: (DASH, "--", "noisy"),
    REFERENCE: ("◇", r"$\diamond$", "noisy"),
}
MEANINGS = {
    CONSISTENT: "the paper's number lies in the prediction interval for one further run, and that "
    "interval is narrow (at most a factor 1.5, or 3 points)",
    BETTER: "ours is better: the paper's number lies outside the interval, on its worse side",
    WORSE: "ours is worse: the paper's number lies outside the interval, on its better side",
    NOISY: "the paper's number lies in the interval, but the interval is too wide to mean much",
    DIRECTION: "values can't be compared; whether two methods stand in the paper's order can",
    NOT_COMPARABLE: "with the reason, e.g. a reduced tier or one repetition",
    NOT_RUN: "no result, with the reason",
}


class Verdict(NamedTuple):
    """A verdict with its reason.

    Attributes:
        word: a key of ``SIGNS``.
        reason: why, in words; empty where the word says all.
        low: lower end of the prediction interval for one further draw; NaN where there is none.
        high: its upper end.
    """

    word: str
    reason: str = ""
    low: float = math.nan
    high: float = math.nan


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
    paper: str,
    values: Sequence[float],
    sampling_errors: Sequence[float],
    scale: Scale,
    n_test: int,
    confidence: float = 0.95,
) -> Verdict:
    """Compare a printed number with the prediction interval for one further draw.

    Args:
        paper: the number as printed.
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
    printed = Printed(paper)
    interval = prediction_interval(values, sampling_errors, scale, n_test, printed, confidence)
    if interval is None:
        return Verdict(NOT_COMPARABLE, "one repetition")
    if printed.value in interval:
        word = CONSISTENT if narrow_enough(interval, scale) else NOISY
    else:
        larger = printed.value < interval.low
        word = BETTER if larger == (scale == "accuracy") else WORSE
    return Verdict(word, "", interval.low, interval.high)


def direction(
    reason: str, scale: Scale, ours: Sequence[float], paper: Sequence[float], partner: str
) -> Verdict:
    """Say whether ours and the paper order two methods alike, where values can't be compared.

    Args:
        reason: why values can't be compared.
        scale: ``error`` or ``accuracy``.
        ours: our mean of the method and of its partner; empty without a partner.
        paper: the printed numbers of both.
        partner: the partner's label.
    """
    if len(ours) < 2:
        return Verdict(DIRECTION, f"{reason}; no partner to compare with")
    mine, theirs = ours[0] - ours[1], paper[0] - paper[1]
    if theirs == 0:
        said = f"the paper ties with {partner}"
    else:
        said = f"{'same' if mine * theirs > 0 else 'opposite'} order against {partner}"
    return Verdict(DIRECTION, f"{said}; {reason}")
