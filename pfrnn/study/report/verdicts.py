"""The verdict on one printed number; docs/statistics.md has the rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pfrnn.study.evaluate.statistics import (
    Interval,
    Printed,
    Scale,
    narrow_enough,
    prediction_interval,
)
from pfrnn.study.report.numbers import DASH

REDUCED_TIERS = ("smoke", "quick", "quick_all")
# What neither the paper nor a source that it cites gives, docs/protocols.md: absolute values of
# these sets aren't judged. The authors' release counts as the paper for maze10's map and length.
_WINDOWED = "split and windows"
OPEN = {
    "maze18": "map and length",
    "maze27": "map and length",
    "aep": "split and unit",
    "air": "split and unit",
    "pm": "split and unit",
    **dict.fromkeys(("lpa", "arem", "gas", "uid"), _WINDOWED),
    "mr": "split",
}

CONSISTENT = "consistent"
NOISY = "too noisy to say"
BETTER = "better"
WORSE = "worse"
UNINFORMATIVE = "uninformative"
SAME = "same order"
OPPOSITE = "opposite order"
UNDECIDED = "order undecided"
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
    UNINFORMATIVE: ("∼", r"$\sim$", "noisy"),
    SAME: ("↑", r"$\uparrow$", "consistent"),
    OPPOSITE: ("↓", r"$\downarrow$", "worse"),
    UNDECIDED: ("↔", r"$\leftrightarrow$", "noisy"),
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
    UNINFORMATIVE: "as consistent, but the interval also holds a trivial control",
    SAME: "values aren't judged; our paired gain over the partner has the paper's sign, and its "
    "interval leaves zero out",
    OPPOSITE: "likewise, with the other sign",
    UNDECIDED: "values aren't judged, and the gain's interval holds zero, or the paper has a tie",
    DIRECTION: "values aren't judged, and no partner has run",
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
    if state == "simulated" and not dataset.startswith("maze"):
        return Verdict(NOT_COMPARABLE, "simulated in place of the real data")
    if state == "excerpt":
        return Verdict(DIRECTION, "data are an excerpt")
    if dataset in OPEN:
        return Verdict(DIRECTION, f"{OPEN[dataset]} not published")
    return None


def judge(
    paper: str,
    values: Sequence[float],
    sampling_errors: Sequence[float],
    scale: Scale,
    n_test: int,
    confidence: float = 0.95,
    controls: Mapping[str, float] | None = None,
) -> Verdict:
    """Compare a printed number with the prediction interval for one further draw.

    Args:
        paper: the number as printed.
        values: ours, one a repetition, finite, in the paper's unit.
        sampling_errors: of each value, from the finite test set.
        scale: ``error`` or ``accuracy``.
        n_test: test items.
        confidence: of the prediction interval.
        controls: trivial predictors on the same test rows, in the paper's unit. An agreement that
            one of them shares says nothing.
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
    shared = [name for name, value in (controls or {}).items() if value in interval]
    if printed.value in interval:
        if shared:
            reason = f"the interval also holds {shared[0].replace('_', ' ')}"
            return Verdict(UNINFORMATIVE, reason, interval.low, interval.high)
        word = CONSISTENT if narrow_enough(interval, scale) else NOISY
    else:
        larger = printed.value < interval.low
        word = BETTER if larger == (scale == "accuracy") else WORSE
    return Verdict(word, "", interval.low, interval.high)


def order(reason: str, gain: Interval | None, paper: float, partner: str) -> Verdict:
    """Say whether ours and the paper order a method and its partner alike.

    Args:
        reason: why values aren't judged.
        gain: interval of our mean paired gain over the partner; None: it can't be told.
        paper: the paper's gain; its sign alone counts.
        partner: the partner's label; empty where none has run.
    """
    if not partner:
        return Verdict(DIRECTION, f"{reason}; no partner to compare with")
    if paper == 0:
        return Verdict(UNDECIDED, f"the paper ties with {partner}; {reason}")
    if gain is None or 0.0 in gain:
        return Verdict(UNDECIDED, f"against {partner}; {reason}")
    word = SAME if (gain.low > 0) == (paper > 0) else OPPOSITE
    return Verdict(word, f"against {partner}; {reason}")
