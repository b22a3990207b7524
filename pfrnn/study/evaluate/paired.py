"""Paired comparisons over repetitions: differences, sign-flip tests, Holm, repetitions needed.

Repetitions are paired: repetition r of two variants on a data set shares its seed and its order of
the data. A test over data sets is stratified: signs are flipped for each (set, repetition) pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from pfrnn.study.evaluate.statistics import Interval, Values, t_interval

Alternative = Literal["greater", "two-sided"]
EXACT_PAIRS = 16  # up to 2^16 sign patterns are enumerated; above, they are drawn


class PairedDifference(NamedTuple):
    """Differences a - b over repetitions.

    Attributes:
        mean: mean difference.
        sd: its spread over repetitions; None for one repetition.
        effect: mean / sd, the standardised effect; None when sd is None or zero.
        interval: Student's interval of the mean; None for one repetition.
        n: pairs.
    """

    mean: float
    sd: float | None
    effect: float | None
    interval: Interval | None
    n: int


class SignFlip(NamedTuple):
    """Result of a sign-flip test.

    Attributes:
        statistic: mean over sets of mean(d) / rms(d), in [-1, 1].
        p_value: in (0, 1].
        pairs: (set, repetition) pairs.
        sets: strata.
        smallest_p: the smallest p-value that so many pairs can give.
        exact: whether all sign patterns were enumerated.
    """

    statistic: float
    p_value: float
    pairs: int
    sets: int
    smallest_p: float
    exact: bool


def paired_difference(a: Values, b: Values, confidence: float = 0.95) -> PairedDifference:
    """Differences of paired values, with spread, standardised effect and interval.

    Raises:
        ValueError: the lengths differ or are zero.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or x.size == 0:
        raise ValueError(f"expected two equally long sequences, got shapes {x.shape}, {y.shape}")
    d = x - y
    mean = float(d.mean())
    if d.size == 1:
        return PairedDifference(mean, None, None, None, 1)
    sd = float(d.std(ddof=1))
    return PairedDifference(
        mean, sd, mean / sd if sd > 0 else None, t_interval(d, confidence), int(d.size)
    )


def sign_flip_test(
    differences: Mapping[str, Sequence[float]],
    alternative: Alternative = "greater",
    draws: int = 20_000,
    seed: int = 0,
) -> SignFlip:
    """Stratified sign-flip test that paired differences are centred above zero.

    Null hypothesis: in every (set, repetition) pair the two variants are exchangeable, so that the
    difference's sign is a fair coin. The statistic averages mean(d) / rms(d) over the sets: rms(d)
    does not change under flips, so each set counts equally whatever its unit. It speaks about
    these data sets, not about data sets in general.

    Args:
        differences: set -> one difference a repetition; sets may have different numbers.
        alternative: ``greater`` or ``two-sided``.
        draws: sign patterns drawn when there are more than 2**16.
        seed: of the drawn patterns.

    Randomness: a generator from ``seed``, only above 16 pairs. The p-value of drawn patterns is
    (1 + hits) / (1 + draws), which keeps the test's level for any number of draws.
    """
    strata = [np.asarray(d, dtype=np.float64) for d in differences.values() if len(d)]
    if not strata:
        raise ValueError("expected at least one paired difference")
    weights = np.concatenate([_weights(d) for d in strata]) / len(strata)
    observed = float(weights.sum())
    pairs = int(weights.size)
    exact = pairs <= EXACT_PAIRS
    hits = total = 0
    for signs in _sign_patterns(pairs, exact, draws, seed):
        flipped = signs @ weights
        if alternative == "two-sided":
            flipped = np.abs(flipped)
        reference = abs(observed) if alternative == "two-sided" else observed
        hits += int(np.sum(flipped >= reference - 1e-12))
        total += len(signs)
    p_value = hits / total if exact else (1 + hits) / (1 + total)
    sides = 2 if alternative == "two-sided" else 1
    smallest = max(sides * 0.5**pairs, 0.0 if exact else 1 / (1 + draws))
    return SignFlip(observed, p_value, pairs, len(strata), min(smallest, 1.0), exact)


def _weights(d: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rms = math.sqrt(float(np.mean(d**2)))
    return d / (rms * d.size) if rms > 0 else np.zeros_like(d)


def _sign_patterns(pairs: int, exact: bool, draws: int, seed: int) -> list[npt.NDArray[np.float64]]:
    if exact:
        codes = np.arange(2**pairs, dtype=np.int64)[:, None] >> np.arange(pairs)
        return [(1.0 - 2.0 * (codes & 1)).astype(np.float64)]
    rng = np.random.default_rng(seed)
    chunks = [min(5000, draws - start) for start in range(0, draws, 5000)]
    return [rng.choice(np.array([-1.0, 1.0]), size=(size, pairs)) for size in chunks]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for several tests by Holm's step-down rule (1979).

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def n_needed(
    effect: float, power: float = 0.8, level: float = 0.05, largest: int = 100_000
) -> int | None:
    """Pairs that a one-sided paired t-test needs to find a standardised effect; None if too many.

    Args:
        effect: mean / sd of the paired differences, in the claimed direction.
        power: wanted probability of finding it, in (0, 1).
        level: of the test, in (0, 1).
        largest: give up above this.

    Example:
        >>> n_needed(1.0)
        8
    """
    if effect <= 0:
        return None

    def reached(n: int) -> bool:
        critical = stats.t.ppf(1 - level, n - 1)
        return bool(stats.nct.sf(critical, n - 1, effect * math.sqrt(n)) >= power)

    low, high = 2, 4
    while not reached(high):
        low, high = high, 2 * high
        if low > largest:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle + 1, high)
    return low
