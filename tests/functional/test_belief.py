"""Reading a belief: moments, quantiles, modes, predictive intervals, coverage."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import stats

from pfrnn.errors import ConfigError
from pfrnn.functional import (
    PFState,
    covariance,
    coverage,
    effective_sample_size,
    entropy,
    mean_particle,
    mixture_cdf,
    modes,
    predictive_interval,
    predictive_quantile,
    quantiles,
    unnormalized_correction,
)

DOUBLE = torch.float64


@pytest.fixture
def belief():
    g = torch.Generator().manual_seed(0)
    particles = torch.randn(2, 3, 6, 4, generator=g, dtype=DOUBLE)
    log_w = torch.randn(2, 3, 6, generator=g, dtype=DOUBLE).log_softmax(-1)
    return particles, log_w


def test_moments(belief):
    particles, log_w = belief
    for index in ((0, 0), (1, 2)):
        x, w = particles[index], log_w[index].exp()
        mean = sum(w[i] * x[i] for i in range(6))
        cov = sum(w[i] * torch.outer(x[i] - mean, x[i] - mean) for i in range(6))
        torch.testing.assert_close(mean_particle(particles, log_w)[index], mean)
        torch.testing.assert_close(covariance(particles, log_w)[index], cov)
        want = -sum(p * math.log(p) for p in w.tolist())
        assert entropy(log_w)[index].item() == pytest.approx(want, rel=1e-12)


def test_entropy_at_its_ends():
    assert entropy(torch.full((5,), -math.log(5.0), dtype=DOUBLE)).item() == pytest.approx(
        math.log(5), rel=1e-12
    )
    sure = torch.tensor([0.0, float("-inf")], requires_grad=True)
    value = entropy(sure)
    assert value == 0
    value.backward()
    assert torch.all(torch.isfinite(sure.grad))


def test_quantiles_by_sorting(belief):
    particles, log_w = belief
    levels = torch.tensor([0.05, 0.5, 0.95, 1.0], dtype=DOUBLE)
    got = quantiles(particles[..., 0], log_w, levels)
    for index in ((0, 1), (1, 0)):
        pairs = sorted(
            zip(particles[index][:, 0].tolist(), log_w[index].exp().tolist(), strict=True)
        )
        totals = list(itertools.accumulate(weight for _, weight in pairs))
        for j, level in enumerate(levels.tolist()):
            place = next(i for i, total in enumerate(totals) if total >= level - 1e-12)
            assert got[index][j] == pairs[place][0]


def test_equal_weights_give_sample_quantiles():
    values = torch.arange(10.0).flip(0)
    log_w = torch.full((10,), -math.log(10.0))
    got = quantiles(values, log_w, torch.tensor([0.11, 0.5, 0.91]))
    assert got.tolist() == [1.0, 4.0, 9.0]


def test_modes_of_two_clusters():
    g = torch.Generator().manual_seed(1)
    near = 0.1 * torch.randn(20, 2, generator=g)
    far = 0.1 * torch.randn(10, 2, generator=g) + 5.0
    points = torch.cat([near, far])[torch.randperm(30, generator=g)]
    found = modes(points.unsqueeze(0), torch.full((1, 30), -math.log(30.0)), 0.3, count=3)
    assert found.mass[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0.0], abs=1e-6)
    assert found.points[0, 0].norm() < 0.5
    assert (found.points[0, 1] - 5.0).norm() < 0.5
    # Weight decides, not the number of particles.
    log_w = torch.where(points[:, 0] > 2.5, 3.0, 0.0).log_softmax(-1).unsqueeze(0)
    heaviest = modes(points.unsqueeze(0), log_w, 0.3, count=2)
    assert (heaviest.points[0, 0] - 5.0).norm() < 0.5


def test_one_particle_is_a_laplace_density():
    for level in (0.01, 0.3, 0.5, 0.9):
        got = predictive_quantile(torch.tensor([2.0], dtype=DOUBLE), torch.zeros(1), level, 1.5)
        assert got.item() == pytest.approx(stats.laplace(2.0, 1.5).ppf(level), abs=1e-9)


def test_quantile_inverts_the_mixture(belief):
    particles, log_w = belief
    for level in (0.001, 0.4, 0.975):
        y = predictive_quantile(particles[..., 0], log_w, level, 0.7)
        back = mixture_cdf(y, particles[..., 0], log_w, 0.7)
        torch.testing.assert_close(back, torch.full_like(back, level), rtol=0, atol=1e-9)


def test_a_quantile_in_a_wide_gap_and_in_single_precision():
    predictions = torch.tensor([0.0, 1e3, 1e3 + 1e-3])
    for level in (1e-6, 0.2, 0.4, 0.6, 0.9, 1 - 1e-6):
        y = predictive_quantile(predictions.double(), torch.zeros(3), level, 0.5)
        back = mixture_cdf(y, predictions.double(), torch.zeros(3, dtype=DOUBLE), 0.5)
        assert back.item() == pytest.approx(level, rel=1e-9)
        assert predictive_quantile(predictions, torch.zeros(3), level, 0.5) == y.float()


def test_unnormalised_weights_are_normalised():
    raw = torch.arange(4.0)
    values, w = torch.arange(4.0) ** 2, raw.log_softmax(-1)
    for read in (
        lambda log_w: mean_particle(values.unsqueeze(-1), log_w),
        lambda log_w: covariance(values.unsqueeze(-1), log_w),
        lambda log_w: quantiles(values, log_w, torch.tensor([0.3, 0.9])),
        lambda log_w: modes(values.unsqueeze(-1), log_w, 1.0).mass,
        lambda log_w: predictive_interval(values, log_w).upper,
        lambda log_w: mixture_cdf(torch.tensor(3.0), values, log_w, 1.0),
        entropy,
        effective_sample_size,
        lambda log_w: unnormalized_correction(log_w, torch.arange(4), 0.5),
    ):
        torch.testing.assert_close(read(raw), read(w))
    assert mean_particle(torch.arange(4.0).unsqueeze(-1), raw).item() == pytest.approx(
        2.4926, abs=1e-4
    )


def test_a_state_answers_for_its_belief(belief):
    state = PFState(belief[0], None, belief[1] + 3.0)
    torch.testing.assert_close(state.mean(), mean_particle(*belief))
    torch.testing.assert_close(state.ess(), effective_sample_size(belief[1]))
    levels = torch.tensor([0.2, 0.7], dtype=DOUBLE)
    both = state.quantile(levels)
    assert both.shape == (2, 2, 3, 4)
    assert torch.equal(both[1], state.quantile(0.7))
    want = quantiles(belief[0][1, 2, :, 3], belief[1][1, 2], levels)
    assert torch.equal(both[:, 1, 2, 3], want)


def test_a_sample_follows_the_weights():
    """Counts of 30,000 draws by chi-square; false-alarm rate 1e-6."""
    log_w = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=DOUBLE).log()
    state = PFState(torch.arange(4.0).view(1, 4, 1), None, log_w + 5.0)
    drawn = [state.sample(30_000, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert drawn[0].shape == (1, 30_000, 1)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    counts = torch.bincount(drawn[0].flatten().long(), minlength=4).numpy()
    assert stats.chisquare(counts, 30_000 * log_w[0].exp().numpy()).pvalue > 1e-6
    assert stats.chisquare(counts, [7_500] * 4).pvalue < 1e-6  # equal weights are noticed


def test_scale_zero_takes_particles_only(belief):
    particles, log_w = belief
    values = particles[..., 0]
    lower, upper = predictive_interval(values, log_w, 0.8, scale=0.0)
    assert torch.equal(lower, quantiles(values, log_w, torch.tensor([0.1], dtype=DOUBLE))[..., 0])
    assert torch.all(lower <= upper)
    assert torch.all((values == upper.unsqueeze(-1)).any(-1))


def draws(scale, seed=3, count=3_000, particles=15):
    """Targets from the mixture itself: particle by weight, then Laplace noise."""
    g = torch.Generator().manual_seed(seed)
    predictions = 2 * torch.randn(count, particles, generator=g, dtype=DOUBLE)
    log_w = torch.randn(count, particles, generator=g, dtype=DOUBLE).log_softmax(-1)
    chosen = torch.multinomial(log_w.exp(), 1, generator=g)
    u = torch.rand(count, generator=g, dtype=DOUBLE) - 0.5
    noise = -scale * u.sign() * torch.log1p(-2 * u.abs())
    return predictions, log_w, predictions.gather(-1, chosen).squeeze(-1) + noise


def test_coverage_of_a_calibrated_model():
    """False-alarm rate 1e-6 over the four levels; a wrong scale must be found."""
    predictions, log_w, y = draws(1.0)
    limit = stats.norm.isf(1e-6 / 4 / 2)
    right = coverage(predictions, log_w, y)
    again = coverage(predictions, log_w, y, levels=right.levels)  # a tensor is a list of levels
    assert torch.equal(again.share, right.share)
    assert right.deviations.abs().max() < limit
    assert torch.all(right.width[1:] > right.width[:-1])
    for wrong in (0.5, 2.0):
        assert coverage(predictions, log_w, y, scale=wrong).deviations.abs().max() > limit


def test_coverage_counts_what_the_mask_keeps():
    predictions, log_w, y = draws(1.0, count=10)
    y[5:] = 1e9
    got = coverage(predictions, log_w, y, mask=torch.arange(10) < 5)
    assert got.count == 5
    everything = coverage(predictions, log_w, y)
    torch.testing.assert_close(everything.share, got.share / 2)
    with pytest.raises(ConfigError, match="at least one target"):
        coverage(predictions, log_w, y, mask=torch.zeros(10, dtype=torch.bool))


@pytest.mark.parametrize(("level", "scale", "name"), [(1.0, 1.0, "level"), (0.5, -1.0, "scale")])
def test_refused_arguments(level, scale, name):
    with pytest.raises(ConfigError, match=name):
        predictive_quantile(torch.zeros(3), torch.zeros(3), level, scale)
