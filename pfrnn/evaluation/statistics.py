"""Two errors, kept apart: the spread over seeds, and the test set's own sampling error.

Seeds: intervals of the mean over repetitions, prediction intervals for one further run (the
paper printed one number a cell, so this is the interval its number should lie in), and paired
tests between variants (repetitions share their seeds). Test set: binomial standard error of an
accuracy, otherwise a bootstrap that draws whole sequences.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from pfrnn.evaluation.metrics import Contributions, metrics

Scale = Literal["linear", "log", "logit"]

# With up to this many pairs all sign patterns are enumerated (2**16 = 65,536).
EXACT_PAIRS = 16
MONTE_CARLO_FLIPS = 100_000


class Interval(NamedTuple):
    """A two-sided interval; NaN where the data don't give one."""

    low: float
    high: float


NO_INTERVAL = Interval(math.nan, math.nan)


def t_interval(values: Sequence[float], confidence: float) -> Interval:
    """Student's interval of the mean over independent repetitions.

    Args:
        values: one value a repetition; fewer than two give no interval.
        confidence: in (0, 1).
    """
    data = np.asarray(values, np.float64)
    if len(data) < 2:
        return NO_INTERVAL
    error = data.std(ddof=1) / math.sqrt(len(data))
    reach = float(stats.t.ppf(0.5 + confidence / 2, len(data) - 1) * error)
    return Interval(float(data.mean()) - reach, float(data.mean()) + reach)


def bootstrap_interval(
    values: Sequence[float], confidence: float, replicates: int, seed: int
) -> Interval:
    """Bias-corrected bootstrap interval of the mean over repetitions.

    Randomness: the same seed gives the same interval.
    """
    data = np.asarray(values, np.float64)
    if len(data) < 2:
        return NO_INTERVAL
    if np.ptp(data) == 0:
        return Interval(float(data[0]), float(data[0]))
    result = stats.bootstrap(
        (data,),
        np.mean,
        confidence_level=confidence,
        n_resamples=replicates,
        rng=np.random.default_rng(seed),
    )
    low, high = result.confidence_interval
    return Interval(float(low), float(high))


def prediction_interval(values: Sequence[float], confidence: float, scale: Scale) -> Interval:
    """Interval that holds the value of one further run with the given probability.

    Student's prediction interval, mean +- t * s * sqrt(1 + 1/n), on a scale on which runs are
    nearer to normal: ``log`` for errors (positive, skewed), ``logit`` for accuracies in percent.

    Args:
        values: one value a repetition, at least two. ``log`` needs positive values; for
            ``logit``, 0 and 100 are moved inwards by 0.01 percent.
        confidence: in (0, 1).
        scale: the scale to compute on; the interval comes back in the values' own unit.
    """
    data = np.asarray(values, np.float64)
    if len(data) < 2 or (scale == "log" and (data <= 0).any()):
        return NO_INTERVAL
    if scale == "log":
        data = np.log(data)
    elif scale == "logit":
        share = np.clip(data / 100.0, 1e-4, 1 - 1e-4)
        data = np.log(share) - np.log1p(-share)
    spread = float(data.std(ddof=1)) * math.sqrt(1 + 1 / len(data))
    reach = float(stats.t.ppf(0.5 + confidence / 2, len(data) - 1)) * spread
    ends = (float(data.mean()) - reach, float(data.mean()) + reach)
    if scale == "log":
        return Interval(math.exp(ends[0]), math.exp(ends[1]))
    if scale == "logit":
        return Interval(100 / (1 + math.exp(-ends[0])), 100 / (1 + math.exp(-ends[1])))
    return Interval(*ends)


def scale_of(metric: str) -> Scale:
    """Scale on which runs of a metric are compared."""
    return "logit" if metric in ("accuracy", "success") else "log"


def sampling_errors(table: Contributions, replicates: int, seed: int) -> dict[str, float]:
    """Standard error of every metric of a task that the finite test set leaves.

    Shares (accuracy, success): binomial. Others: bootstrap over whole sequences. A single
    sequence gives NaN.

    Randomness: the same seed gives the same errors.
    """
    values = metrics(table)
    count = table.sequences
    if count < 2:
        return dict.fromkeys(values, math.nan)
    rng = np.random.default_rng(seed)
    drawn = [metrics(table, rng.integers(0, count, count)) for _ in range(replicates)]
    errors = {name: float(np.std([one[name] for one in drawn], ddof=1)) for name in values}
    for name in ("accuracy", "success"):
        if name in values:
            share = values[name] / 100.0
            errors[name] = 100.0 * math.sqrt(share * (1 - share) / count)
    return errors


def sign_flip_test(differences: Sequence[float], seed: int = 0) -> float:
    """Two-sided p-value that paired differences have no preferred sign.

    Under the null hypothesis each difference is as likely as its negative. The statistic is the
    absolute mean. All sign patterns up to 16 pairs, above that 100,000 random ones (with the
    observed one counted in, so p is never 0).

    Args:
        differences: one a repetition, variant minus variant at the same seeds.
        seed: for the random patterns.

    Example:
        >>> sign_flip_test([1.0, 2.0, 1.5])
        0.25
    """
    data = np.asarray(differences, np.float64)
    if len(data) == 0:
        return math.nan
    observed = abs(float(data.mean()))
    # Equal sums in another order of addition must count as equal.
    threshold = observed * (1 - 1e-12)
    if len(data) <= EXACT_PAIRS:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(data))))
        return float((np.abs(signs @ data) / len(data) >= threshold).mean())
    rng = np.random.default_rng(seed)
    signs = rng.choice((-1.0, 1.0), size=(MONTE_CARLO_FLIPS, len(data)))
    extreme = int((np.abs(signs @ data) / len(data) >= threshold).sum())
    return (extreme + 1) / (MONTE_CARLO_FLIPS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values of a family of tests (Holm 1979), in the order given; NaN stays NaN.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    p: npt.NDArray[Any] = np.asarray(p_values, np.float64)
    known = np.flatnonzero(~np.isnan(p))
    adjusted = np.full(len(p), math.nan)
    running = 0.0
    for rank, position in enumerate(known[np.argsort(p[known], kind="stable")]):
        running = max(running, min(1.0, float(p[position]) * (len(known) - rank)))
        adjusted[position] = running
    return [float(value) for value in adjusted]
