"""Paired tests: their level, their power, and known answers.

Level: a p-value below 0.05 may occur in at most 5 % of null draws. With N draws the share may
exceed that by 4.9 sqrt(0.05 * 0.95 / N) (false alarm 1e-6). Mutants must exceed it.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from pfrnn.study.evaluate.paired import (
    equivalence_p,
    excluded_beyond,
    holm,
    n_needed,
    sign_flip_test,
)

DRAWS = 2000
HIGHEST = 0.05 + 4.9 * math.sqrt(0.05 * 0.95 / DRAWS)


def strata(rng: np.random.Generator, shift: float = 0.0) -> dict[str, np.ndarray]:
    """Two sets with three repetitions each, very different units, heavy tails, ties."""
    return {
        "a": np.round(rng.standard_t(2, size=3) + shift, 1),
        "b": 1000 * (rng.normal(size=3) + shift),
    }


def test_sign_flip_keeps_its_level() -> None:
    rng = np.random.default_rng(0)
    p = [sign_flip_test(strata(rng)).p_value for _ in range(DRAWS)]
    assert np.mean(np.array(p) <= 0.05) < HIGHEST


def test_drawn_patterns_keep_the_level() -> None:
    rng = np.random.default_rng(1)
    nulls = rng.normal(size=(400, 3, 6))
    p = [
        sign_flip_test(dict(enumerate(d)), draws=199, seed=i).p_value  # type: ignore[arg-type]
        for i, d in enumerate(nulls)
    ]
    assert np.mean(np.array(p) <= 0.05) < 0.05 + 4.9 * math.sqrt(0.05 * 0.95 / 400)


def test_pooling_sets_without_their_dependence_loses_the_level() -> None:
    """Mutant: a normal approximation that takes 6 small values for many."""
    rng = np.random.default_rng(2)

    def mutant(d: dict[str, np.ndarray]) -> float:
        z = [x.mean() / (x.std(ddof=1) / math.sqrt(3) + 1e-12) for x in d.values()]
        return float(stats.norm.sf(sum(z) / math.sqrt(len(z))))

    p = [mutant(strata(rng)) for _ in range(DRAWS)]
    assert np.mean(np.array(p) <= 0.05) > HIGHEST


def test_sign_flip_finds_an_effect_and_its_direction() -> None:
    rng = np.random.default_rng(3)
    d = {name: rng.normal(1.0, 0.7, size=6) for name in "abc"}
    assert sign_flip_test(d).p_value < 0.001
    assert sign_flip_test({k: -v for k, v in d.items()}).p_value > 0.99
    assert sign_flip_test(d, "two-sided").p_value < 0.002


def test_exact_p_value_by_plain_enumeration() -> None:
    d = {"a": [1.0, -0.2, 0.7], "b": [3.0, 5.0]}
    observed = sign_flip_test(d)

    def statistic(values: dict[str, list[float]]) -> float:
        return sum(
            sum(v) / len(v) / math.sqrt(sum(x * x for x in v) / len(v)) for v in values.values()
        ) / len(values)

    hits = 0
    for signs in itertools.product([1, -1], repeat=5):
        a = [s * x for s, x in zip(signs[:3], d["a"], strict=True)]
        b = [s * x for s, x in zip(signs[3:], d["b"], strict=True)]
        hits += statistic({"a": a, "b": b}) >= statistic(d) - 1e-12
    assert observed.exact
    assert observed.p_value == hits / 32
    assert math.isclose(observed.statistic, statistic(d))


def test_six_repetitions_cannot_reach_significance_after_holm_over_ten_sets() -> None:
    best = sign_flip_test({"one": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    assert best.p_value == 2**-6
    assert holm([best.p_value] * 10)[0] > 0.05
    assert holm([2**-10] * 10)[0] < 0.05


def test_same_seed_same_p_value() -> None:
    d = {"a": np.random.default_rng(4).normal(0.3, 1, size=30)}
    assert sign_flip_test(d, seed=1) == sign_flip_test(d, seed=1)
    assert sign_flip_test(d, seed=1).p_value != sign_flip_test(d, seed=2).p_value


def test_all_ties_are_no_evidence() -> None:
    assert sign_flip_test({"a": [0.0] * 6}).p_value == 1.0


def test_no_difference_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        sign_flip_test({"a": []})


def test_holm_known_answer_and_family_wise_level() -> None:
    assert holm([0.01, 0.02, 0.03, 0.5]) == pytest.approx([0.04, 0.06, 0.06, 0.5])
    p = np.random.default_rng(5).random((DRAWS, 10))
    assert np.mean([min(holm(list(row))) <= 0.05 for row in p]) < HIGHEST
    assert np.mean(p.min(axis=1) <= 0.05) > HIGHEST  # mutant: no correction


def test_exact_p_value_is_scipys() -> None:
    """One stratum of equal sizes: scipy's paired permutation test flips the same signs."""
    d = np.array([1.0, -0.2, 0.7, 3.0, 0.5, -0.4])
    for alternative in ("greater", "two-sided"):
        theirs = stats.permutation_test(
            (d,), np.mean, permutation_type="samples", alternative=alternative, n_resamples=10**6
        )
        assert sign_flip_test({"a": d}, alternative).p_value == pytest.approx(theirs.pvalue)


def test_holm_is_rs() -> None:
    """R: p.adjust(c(0.01, 0.04, 0.03, 0.005, 0.2), "holm")."""
    assert holm([0.01, 0.04, 0.03, 0.005, 0.2]) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.2])
    assert holm([]) == []


def test_equivalence_is_two_one_sided_t_tests() -> None:
    d = np.array([0.10, -0.20, 0.30, 0.05, -0.10, 0.15])
    for bound in (0.2, 0.3, 0.5):
        tests = (
            stats.ttest_1samp(d, -bound, alternative="greater").pvalue,
            stats.ttest_1samp(d, bound, alternative="less").pvalue,
        )
        assert equivalence_p(d, bound) == pytest.approx(max(tests))
    # What is excluded at 5 % is where the test's p-value is 5 %.
    assert equivalence_p(d, excluded_beyond(d)) == pytest.approx(0.05)
    assert math.isnan(equivalence_p([1.0], 2.0))


def test_equivalence_keeps_its_level() -> None:
    """An effect of exactly the bound is called equivalent in at most 5 %."""
    rng = np.random.default_rng(7)
    p = [equivalence_p(rng.normal(0.5, 0.3, size=6), 0.5) for _ in range(DRAWS)]
    assert np.mean(np.array(p) <= 0.05) < HIGHEST
    # Mutant: one test alone lets an effect of minus the bound pass.
    mutant = [stats.ttest_1samp(rng.normal(-0.5, 0.3, 6), 0.5, alternative="less").pvalue
              for _ in range(DRAWS)]  # fmt: skip
    assert np.mean(np.array(mutant) <= 0.05) > HIGHEST


@pytest.mark.parametrize("effect", [0.5, 1.2])
def test_n_needed_reaches_the_power(effect: float) -> None:
    n = n_needed(effect)
    assert n is not None

    def power(pairs: int) -> float:
        x = np.random.default_rng(6).normal(effect, 1.0, size=(DRAWS * 5, pairs))
        t = x.mean(axis=1) / x.std(axis=1, ddof=1) * math.sqrt(pairs)
        return float(np.mean(t > stats.t.ppf(0.95, pairs - 1)))

    slack = 4.9 * math.sqrt(0.8 * 0.2 / (DRAWS * 5))
    assert power(n) > 0.8 - slack
    assert power(n - 1) < 0.8 + slack
    assert n_needed(-0.1) is None
    assert n_needed(1e-4) is None
