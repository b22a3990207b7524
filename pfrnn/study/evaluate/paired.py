"""Paired comparisons over repetitions: sign-flip and equivalence tests, Holm, pairs needed.

Repetitions are paired: repetition r of two variants on a data set shares its seed and its order of
the data. A test over data sets is stratified: signs are flipped for each (set, repetition) pair.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

Alternative = Literal["greater", "two-sided"]
EXACT_PAIRS = 16  # up to 2^16 sign patterns are enumerated; above, they are drawn


class SignFlip(NamedTuple):
    """Result of a sign-flip test.

    Attributes:
        statistic: mean over sets of mean(d) / rms(d), in [-1, 1].
        p_value: in (0, 1].
        pairs: (set, repetition) pairs.
        sets: strata.
        exact: whether all sign patterns were enumerated.
    """

    statistic: float
    p_value: float
    pairs: int
    sets: int
    exact: bool


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
    observed, pairs = float(weights.sum()), int(weights.size)
    exact = pairs <= EXACT_PAIRS
    flipped = np.concatenate(
        [signs @ weights for signs in _sign_patterns(pairs, exact, draws, seed)]
    )
    if alternative == "two-sided":
        hits = int(np.sum(np.abs(flipped) >= abs(observed) - 1e-12))
    else:
        hits = int(np.sum(flipped >= observed - 1e-12))
    p_value = hits / flipped.size if exact else (1 + hits) / (1 + flipped.size)
    return SignFlip(observed, p_value, pairs, len(strata), exact)


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
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(p.size, 0, -1) * p[order]))
    return [float(value) for value in adjusted]


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

    high = 4
    while not reached(high):
        high *= 2
        if high > 2 * largest:
            return None
    return bisect_left(range(high + 1), True, lo=2, key=reached)


def equivalence_p(differences: Sequence[float], bound: float) -> float:
    """Return the p-value of two one-sided t-tests that a paired effect lies within +-``bound``.

    Schuirmann (1987): the larger of the p-values of "the effect is at most -bound" and "it is at
    least +bound". NaN below two pairs.

    Args:
        differences: one a pair.
        bound: the smallest effect that matters, above 0, in the differences' unit.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.size < 2:
        return math.nan
    error = float(stats.sem(d))
    if error == 0:
        return 0.0 if abs(float(d.mean())) < bound else 1.0
    lower = stats.t.sf((d.mean() + bound) / error, d.size - 1)
    upper = stats.t.cdf((d.mean() - bound) / error, d.size - 1)
    return float(max(lower, upper))


def excluded_beyond(differences: Sequence[float], level: float = 0.05) -> float:
    """Return the smallest bound for which :func:`equivalence_p` is at most ``level``.

    Effects of that size or more, either way, are excluded. NaN below two pairs.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.size < 2:
        return math.nan
    return float(abs(d.mean()) + stats.t.ppf(1 - level, d.size - 1) * stats.sem(d))
