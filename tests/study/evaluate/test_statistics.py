"""Intervals against simulated draws with a known truth.

Monte Carlo bounds: a coverage c estimated from N draws has standard error sqrt(c (1 - c) / N); a
test allows 4.9 of them (false alarm 1e-6), plus the method's own known deviation where the
docstring names one. Each test also runs a known-wrong mutant that must leave the bounds.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from pfrnn.study.evaluate import statistics
from pfrnn.study.evaluate.statistics import (
    Interval,
    Printed,
    narrow_enough,
    prediction_interval,
    pull_inside,
    t_interval,
    transform,
    transformed_error,
)

Z = 4.9


def bound(coverage: float, draws: int) -> float:
    return Z * math.sqrt(coverage * (1 - coverage) / draws)


def normal_quantile(confidence: float, freedom: float) -> float:
    return float(stats.norm.ppf((1 + confidence) / 2))


def t_coverage(n: int, draws: int) -> float:
    x = np.random.default_rng(n).normal(3.0, 2.0, size=(draws, n))
    return float(np.mean([3.0 in t_interval(row, 0.9) for row in x]))


def test_t_interval_covers_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (2, 4):
        assert abs(t_coverage(n, 4000) - 0.9) < bound(0.9, 4000)
    monkeypatch.setattr(statistics, "_quantile", normal_quantile)
    assert t_coverage(4, 4000) < 0.9 - bound(0.9, 4000)


def prediction_coverage(n: int, seeds: float, sampling: float, draws: int) -> float:
    """Share of further draws that fall inside: own seed and own test set each time."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(draws):
        ours, theirs = rng.normal(size=2) * sampling
        x = np.exp(ours + seeds * rng.normal(size=n))
        further = math.exp(theirs + seeds * rng.normal())
        hits += further in prediction_interval(x, x * sampling, "error", 1000)
    return hits / draws


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize(("seeds", "sampling"), [(0.2, 0.01), (0.2, 0.2), (0.02, 0.2)])
def test_prediction_interval_covers_a_further_draw(n: int, seeds: float, sampling: float) -> None:
    # Satterthwaite's approximation stays within 2 points from n = 3 on (measured with 3,000 draws).
    coverage = prediction_coverage(n, seeds, sampling, 1500)
    assert abs(coverage - 0.95) < 0.02 + bound(0.95, 1500)


def test_prediction_interval_mutants_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    lowest = 0.95 - 0.02 - bound(0.95, 1500)
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "_quantile", normal_quantile)
        assert prediction_coverage(3, 0.2, 0.01, 1500) < lowest
    with monkeypatch.context() as patch:  # the test set's error forgotten
        patch.setattr(statistics, "transformed_error", lambda *arguments: 0.0)
        assert prediction_coverage(6, 0.02, 0.2, 1500) < lowest
    x = np.random.default_rng(0).normal(size=(1500, 7))  # the interval of the mean instead
    mean_only = np.mean([row[6] in t_interval(row[:6]) for row in x])
    assert mean_only < lowest


def accuracy_coverage(level: float, n_test: int, draws: int) -> float:
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(draws):
        share = level + rng.normal(size=7) * 0.002
        # Six repetitions share a test set: one set of items, each with its own difficulty.
        items = rng.random(n_test)
        ours = 100 * np.mean(items[None, :] < share[:6, None], axis=1)
        theirs = 100 * rng.binomial(n_test, min(share[6], 1)) / n_test
        errors = np.sqrt(ours * (100 - ours) / n_test)
        hits += theirs in prediction_interval(
            ours, errors, "accuracy", n_test, Printed(f"{theirs:.1f}")
        )
    return hits / draws


@pytest.mark.parametrize(("level", "n_test"), [(0.75, 800), (0.97, 600), (0.995, 600)])
def test_prediction_interval_covers_an_accuracy(level: float, n_test: int) -> None:
    assert accuracy_coverage(level, n_test, 800) > 0.95 - 0.02 - bound(0.95, 800)


def test_one_repetition_has_no_interval() -> None:
    assert t_interval([1.0]) is None
    assert prediction_interval([1.0], [0.1], "error", 10) is None


@pytest.mark.parametrize("bad", [[1.0, math.nan], [math.inf, 1.0], [[1.0, 2.0]]])
def test_values_that_are_not_finite_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        t_interval(bad)


def test_known_t_interval() -> None:
    found = t_interval([1.0, 2.0, 3.0, 4.0])
    assert found is not None
    half = stats.t.ppf(0.975, 3) * math.sqrt(5 / 3) / 2
    assert math.isclose(found.low, 2.5 - half)
    assert math.isclose(found.high, 2.5 + half)


@pytest.mark.parametrize(
    ("text", "half"), [("13.12", 0.005), ("17.7", 0.05), ("100", 0.5), ("2.862", 0.0005)]
)
def test_half_of_the_last_printed_digit(text: str, half: float) -> None:
    assert math.isclose(Printed(text).half_digit, half)


def test_half_digit_widens_both_ends() -> None:
    plain = prediction_interval([90.0, 91.0], [1.0, 1.0], "accuracy", 900)
    wide = prediction_interval([90.0, 91.0], [1.0, 1.0], "accuracy", 900, Printed("90.5"))
    assert plain is not None
    assert wide is not None
    assert math.isclose(plain.low - wide.low, 0.05)
    assert math.isclose(wide.high - plain.high, 0.05)


def test_perfect_accuracy_stays_finite_and_admits_doubt() -> None:
    found = prediction_interval([100.0] * 6, [0.0] * 6, "accuracy", 600, Printed("100"))
    assert found is not None
    assert found.high == 100.0
    # The logit's tail is long there: 600 of 600 right does not exclude 577 of 600 elsewhere.
    assert 95.0 < found.low < 97.0
    assert transform(100.0, "accuracy", 600) == transform(99.99, "accuracy", 600)
    assert transformed_error(100.0, 0.0, "accuracy", 600) > 1.0
    assert pull_inside(0.0, 50) == 0.01


def test_narrow_enough() -> None:
    def interval(low: float, high: float) -> Interval:
        return Interval(low, high, 0.95, 6, "prediction")

    check: Callable[..., bool] = narrow_enough
    assert check(interval(10, 14.9), "error")
    assert not check(interval(10, 15.1), "error")
    assert not check(interval(0, 0.1), "error")
    assert check(interval(90, 93), "accuracy")
    assert not check(interval(90, 93.1), "accuracy")


def test_an_error_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        transform(0.0, "error", 10)
