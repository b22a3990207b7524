"""Intervals: for a mean over repetitions, and for one further draw such as the paper's number.

Errors are compared as logarithms and accuracies as logits, where differences mean the same at
every level and an interval cannot leave the possible range. docs/statistics.md fixes the rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

Values = Sequence[float] | npt.NDArray[np.float64]
Scale = Literal["error", "accuracy"]


class Interval(NamedTuple):
    """An interval and what it is of.

    Attributes:
        low: lower end.
        high: upper end.
        confidence: in (0, 1).
        n: repetitions it rests on, at least 2.
        method: ``t`` or ``prediction``.
    """

    low: float
    high: float
    confidence: float
    n: int
    method: str

    def __contains__(self, value: object) -> bool:
        """Whether a number lies in the closed interval."""
        return isinstance(value, float | int) and self.low <= value <= self.high


class Printed(NamedTuple):
    """A number as a paper prints it.

    Attributes:
        text: the digits in print, e.g. ``"13.12"`` or ``"100"``.

    Example:
        >>> Printed("13.12").half_digit
        0.005
    """

    text: str

    @property
    def value(self) -> float:
        """The number."""
        return float(self.text)

    @property
    def half_digit(self) -> float:
        """Half a unit of the last printed digit: how far rounding can have moved the number."""
        decimals = len(self.text.partition(".")[2])
        return 0.5 * float(10.0**-decimals)


def t_interval(values: Values, confidence: float = 0.95) -> Interval | None:
    """Student's interval for the mean over repetitions; None below two repetitions.

    Args:
        values: one finite number a repetition.
        confidence: in (0, 1).

    Example:
        >>> t_interval([1.0, 2.0, 3.0]).high > 3.0
        True
    """
    x = _finite(values)
    if x.size < 2:
        return None
    half = _quantile(confidence, x.size - 1) * float(stats.sem(x))
    mean = float(x.mean())
    return Interval(mean - half, mean + half, confidence, int(x.size), "t")


def pull_inside(accuracy: float, n_test: int) -> float:
    """Pull an accuracy into [0.5 / n_test, 1 - 0.5 / n_test], where its logit is finite.

    Args:
        accuracy: share of correct answers, in [0, 1].
        n_test: test items, at least 1.

    Example:
        >>> pull_inside(1.0, 100)
        0.995
    """
    if n_test < 1:
        raise ValueError(f"n_test: expected at least 1 test item, got {n_test}")
    edge = 0.5 / n_test
    return min(max(accuracy, edge), 1.0 - edge)


def transform(value: float, scale: Scale, n_test: int) -> float:
    """Log of an error (> 0) or logit of an accuracy in percent, pulled inside first."""
    if scale == "error":
        if value <= 0:
            raise ValueError(f"an error must be above 0 to be compared as a logarithm, got {value}")
        return math.log(value)
    share = pull_inside(value / 100.0, n_test)
    return math.log(share / (1.0 - share))


def back(value: float, scale: Scale) -> float:
    """Inverse of :func:`transform`."""
    return math.exp(value) if scale == "error" else 100.0 / (1.0 + math.exp(-value))


def transformed_error(value: float, sampling_error: float, scale: Scale, n_test: int) -> float:
    """Standard error of the transformed value, by the delta method.

    For an accuracy never below the binomial error at the pulled-in share: a test set answered
    without a fault says little about the next one, although its recorded error is zero.
    """
    if scale == "error":
        return sampling_error / value
    share = pull_inside(value / 100.0, n_test)
    spread = share * (1.0 - share)
    return max(sampling_error / 100.0, math.sqrt(spread / n_test)) / spread


def prediction_interval(
    values: Values,
    sampling_errors: Values,
    scale: Scale,
    n_test: int,
    printed: Printed | None = None,
    confidence: float = 0.95,
) -> Interval | None:
    """Where one further draw (another seed, another test set) falls; None below two repetitions.

    On the transformed scale the half width is q * sqrt(s^2 (1 + 1/n) + 2 e^2): s is the spread
    over seeds, e the test set's sampling error. It counts twice, since our repetitions share one
    test set and the other draw has its own. q is Student's quantile with Satterthwaite's degrees
    of freedom, for only s is estimated from n values. The ends are then moved outwards by half of
    the last digit of the number that is to be compared.

    Args:
        values: errors in the target's unit, or accuracies in percent; one a repetition.
        sampling_errors: standard error of each value from the finite test set, same unit.
        scale: ``error`` (log) or ``accuracy`` (logit).
        n_test: test items.
        printed: the number to compare with; None for no widening.
        confidence: in (0, 1).

    Returns:
        The interval in the unit of ``values``.
    """
    x = _finite(values)
    errors = _finite(sampling_errors)
    if x.size != errors.size:
        raise ValueError(f"expected one sampling error a value: {x.size} values, {errors.size}")
    if x.size < 2:
        return None
    points = np.array([transform(float(v), scale, n_test) for v in x])
    e = [
        transformed_error(float(v), float(s), scale, n_test) for v, s in zip(x, errors, strict=True)
    ]
    seeds = float(points.var(ddof=1)) * (1.0 + 1.0 / x.size)
    total = seeds + 2.0 * float(np.mean(np.square(e)))
    freedom = (x.size - 1) * (total / seeds) ** 2 if seeds > 0 else math.inf
    half = _quantile(confidence, freedom) * math.sqrt(total)
    centre = float(points.mean())
    low, high = back(centre - half, scale), back(centre + half, scale)
    if printed is not None:
        low, high = low - printed.half_digit, high + printed.half_digit
    top = 100.0 if scale == "accuracy" else math.inf
    return Interval(max(low, 0.0), min(high, top), confidence, int(x.size), "prediction")


def narrow_enough(
    interval: Interval, scale: Scale, factor: float = 1.5, points: float = 3.0
) -> bool:
    """Whether an interval can support "consistent": high / low, or high - low in points."""
    if scale == "accuracy":
        return interval.high - interval.low <= points
    return interval.low > 0 and interval.high / interval.low <= factor


def _quantile(confidence: float, freedom: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number in (0, 1), got {confidence}")
    tail = (1 + confidence) / 2
    return float(stats.norm.ppf(tail) if math.isinf(freedom) else stats.t.ppf(tail, freedom))


def _finite(values: Values) -> npt.NDArray[np.float64]:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not np.all(np.isfinite(x)):
        raise ValueError("expected a flat sequence of finite numbers; leave diverged runs out")
    return x
