"""Resampling as statistics: unbiasedness, bias of order 1/K, distributions; and wrong ones fail.

False-alarm rate of each test: 1e-6 in all, shared among its z-scores (Bonferroni), two-sided.
Seeds are fixed, so a passing run stays passing; the rate says how likely a correct resampler was
to fail when the seed was chosen.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from pfrnn.functional import (
    multinomial_resample,
    soft_resample,
    systematic_resample,
    unnormalized_correction,
)

ALARM = 1e-6
DRAWS = 200_000
DOUBLE = torch.float64
FUNCTIONS = {
    "identity": lambda x: x,
    "square": lambda x: x**2,
    "indicator": lambda x: (x > 0.5).to(x.dtype),
}
WEIGHTS = torch.tensor([0.53, 0.27, 0.14, 0.06], dtype=DOUBLE)
VALUES = torch.tensor([0.2, 1.5, -0.7, 3.0], dtype=DOUBLE)


def bound(tests):
    """The z-score that a correct sampler exceeds with probability ALARM over all tests."""
    return stats.norm.isf(ALARM / tests / 2)


def unnormalized(alpha, mutant=None, draws=DRAWS):
    """Log corrected weights and particle values of many independent resamplings."""
    g = torch.Generator().manual_seed(12)
    log_w = WEIGHTS.log().expand(draws, -1)
    ancestors = soft_resample(
        log_w, torch.rand(draws, len(WEIGHTS), generator=g, dtype=DOUBLE), alpha
    ).ancestors
    correction = unnormalized_correction(log_w, ancestors, alpha)
    if mutant == "not gathered":
        correction = unnormalized_correction(
            log_w, torch.arange(len(WEIGHTS)).expand(draws, -1), alpha
        )
    elif mutant == "log sign flipped":
        correction = -correction
    elif mutant == "1/K missing":
        correction = correction + math.log(len(WEIGHTS))
    return correction, VALUES[ancestors]


def z_scores(alpha, mutant=None):
    log_w, x = unnormalized(alpha, mutant)
    found = []
    for f in FUNCTIONS.values():
        estimates = (log_w.exp() * f(x)).mean(-1)
        truth = (WEIGHTS * f(VALUES)).sum()
        error = estimates.std() / math.sqrt(len(estimates))
        found.append(abs(float((estimates.mean() - truth) / error)))
    return found


@pytest.mark.parametrize("alpha", [0.5, 0.1])
def test_corrected_weights_are_unbiased(alpha):
    assert max(z_scores(alpha)) < bound(2 * len(FUNCTIONS))


@pytest.mark.parametrize("alpha", [0.5, 0.1])
@pytest.mark.parametrize("mutant", ["not gathered", "log sign flipped", "1/K missing"])
def test_wrong_corrections_are_caught(alpha, mutant):
    assert max(z_scores(alpha, mutant)) > bound(2 * len(FUNCTIONS))


def test_carried_weights_are_the_renormalised_correction():
    g = torch.Generator().manual_seed(0)
    log_w = torch.randn(50, 7, generator=g, dtype=DOUBLE).log_softmax(-1)
    result = soft_resample(log_w, torch.rand(50, 7, generator=g, dtype=DOUBLE), 0.3)
    want = unnormalized_correction(log_w, result.ancestors, 0.3).log_softmax(-1)
    torch.testing.assert_close(result.log_weights, want)


def renormalised_bias(count, alpha, mutant=None, draws=400_000):
    """Bias of the carried weights' mean of f(x) = x, and its standard error.

    Weights and values repeat the four above count / 4 times, so that the truth stays the same.
    """
    g = torch.Generator().manual_seed(count)
    repeat = count // len(WEIGHTS)
    log_w = (WEIGHTS.repeat(repeat) / repeat).log().expand(draws // repeat, -1)
    values = VALUES.repeat(repeat)
    uniforms = torch.rand(log_w.shape, generator=g, dtype=DOUBLE)
    result = soft_resample(log_w, uniforms, alpha)
    weights = result.log_weights.exp()
    if mutant == "never corrected":
        weights = torch.full_like(weights, 1 / count)
    estimates = (weights * values[result.ancestors]).sum(-1)
    truth = (WEIGHTS * VALUES).sum()
    return float(estimates.mean() - truth), float(estimates.std() / math.sqrt(len(estimates)))


@pytest.mark.parametrize("mutant", [None, "never corrected"])
def test_bias_of_renormalised_weights_shrinks_as_one_over_k(mutant):
    """K times the bias stays bounded by its value at K = 4, within Monte Carlo error."""
    sizes = (4, 16, 64, 256)
    biases = [renormalised_bias(count, 0.5, mutant) for count in sizes]
    z = bound(len(sizes))
    ok = [
        count * max(abs(bias) - z * error, 0.0)
        <= 1.5 * sizes[0] * (abs(biases[0][0]) + z * biases[0][1])
        for count, (bias, error) in zip(sizes, biases, strict=True)
    ]
    if mutant is None:
        assert all(ok)
        # There is a bias at all: at K = 4 it stands clear of the noise.
        assert abs(biases[0][0]) > z * biases[0][1]
    else:
        assert not all(ok)


def chi_square_p(ancestors, probabilities):
    counts = torch.bincount(ancestors.flatten(), minlength=len(probabilities)).double()
    expected = probabilities * counts.sum()
    keep = expected > 0
    assert torch.all(counts[~keep] == 0)
    return stats.chisquare(counts[keep].numpy(), expected[keep].numpy()).pvalue


@pytest.mark.parametrize("mutant", [None, "mixture", "left side"])
def test_multinomial_by_chi_square(mutant):
    g = torch.Generator().manual_seed(5)
    weights = torch.tensor([0.0, 0.4, 0.0, 0.35, 0.2, 0.05, 0.0], dtype=DOUBLE)
    log_w = weights.log().clamp(min=-1e30).expand(100_000, -1)
    uniforms = torch.rand(log_w.shape, generator=g, dtype=DOUBLE)
    if mutant == "mixture":
        ancestors = soft_resample(log_w, uniforms, 0.98).ancestors
        counts = torch.bincount(ancestors.flatten())
        assert counts[0] > 0  # what the chi-square below must not forgive
        weights = torch.where(weights > 0, weights, 1e-12)
    elif mutant == "left side":
        # Off by one: every ancestor is its left neighbour.
        ancestors = (multinomial_resample(log_w, uniforms).ancestors - 1).clamp(min=0)
        weights = torch.where(weights > 0, weights, 1e-12)
    else:
        ancestors = multinomial_resample(log_w, uniforms).ancestors
    p = chi_square_p(ancestors, weights / weights.sum())
    assert (p > ALARM) if mutant is None else (p < ALARM)


def test_multinomial_draws_are_independent():
    """Two ancestors of a row are uncorrelated (a z-score); systematic ones are not."""
    g = torch.Generator().manual_seed(6)
    log_w = WEIGHTS.log().expand(DRAWS, -1)
    uniforms = torch.rand(log_w.shape, generator=g, dtype=DOUBLE)
    scores = []
    for method in (multinomial_resample, systematic_resample):
        first, second = method(log_w, uniforms).ancestors[:, 2:].double().t()
        scores.append(
            abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) * math.sqrt(DRAWS)
        )
    assert scores[0] < bound(1) < scores[1]


def test_systematic_counts():
    g = torch.Generator().manual_seed(7)
    log_w = (3 * torch.randn(20_000, 30, generator=g, dtype=DOUBLE)).log_softmax(-1)
    uniforms = torch.rand(log_w.shape, generator=g, dtype=DOUBLE)
    expected = 30 * log_w.exp()

    def worst(method):
        ancestors = method(log_w, uniforms).ancestors
        counts = torch.zeros_like(log_w).scatter_add_(-1, ancestors, torch.ones_like(log_w))
        return (counts - expected).abs().max()

    assert worst(systematic_resample) < 1 + 1e-9  # rounding of the cumulative sum
    assert worst(multinomial_resample) > 1


def test_systematic_is_unbiased():
    g = torch.Generator().manual_seed(8)
    log_w = WEIGHTS.log().expand(DRAWS, -1)
    uniforms = torch.rand(log_w.shape, generator=g, dtype=DOUBLE)
    ancestors = systematic_resample(log_w, uniforms).ancestors
    for i, weight in enumerate(WEIGHTS.tolist()):
        share = (ancestors == i).double().mean(-1)
        z = abs(float((share.mean() - weight) / (share.std() / math.sqrt(DRAWS))))
        assert z < bound(len(WEIGHTS))
