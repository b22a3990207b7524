"""The filter core with a linear-Gaussian model in place of the learned one, against Kalman.

x' = a x + q noise, y = x + r noise. The log-evidence that the weights give, and the mean, must
agree with the exact ones within the Monte Carlo error, which must fall as 1 / sqrt(K).
False-alarm rate 1e-6 in all.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from pfrnn.functional import (
    FilterSwitches,
    PFState,
    filter_update,
    mean_particle,
    unnormalized_correction,
)

ALARM = 1e-6
A, Q, R, T = 0.9, 0.5, 0.7, 12
DOUBLE = torch.float64


def observations():
    g = torch.Generator().manual_seed(1)
    x, ys = 0.0, []
    for _ in range(T):
        x = A * x + Q * torch.randn((), generator=g, dtype=DOUBLE)
        ys.append(x + R * torch.randn((), generator=g, dtype=DOUBLE))
    return torch.stack(ys)


def kalman(ys):
    """Exact filtered means and log-evidence; the start is N(0, 1)."""
    mean, var, log_z, means = 0.0, 1.0, 0.0, []
    for y in ys.tolist():
        mean, var = A * mean, A * A * var + Q * Q
        total = var + R * R
        log_z += -0.5 * (math.log(2 * math.pi * total) + (y - mean) ** 2 / total)
        gain = var / total
        mean, var = mean + gain * (y - mean), (1 - gain) * var
        means.append(mean)
    return torch.tensor(means, dtype=DOUBLE), log_z


def particle_filter(ys, count, runs, switches, seed, mutant=None):
    """Filtered means (T, runs) and evidence estimates relative to nothing, in logs (runs,)."""
    g = torch.Generator().manual_seed(seed)

    def normal():
        return torch.randn(runs, count, 1, generator=g, dtype=DOUBLE)

    state = PFState(normal(), None, torch.full((runs, count), -math.log(count), dtype=DOUBLE))
    log_z, means = torch.zeros(runs, dtype=DOUBLE), []
    factor = torch.zeros(runs, dtype=DOUBLE)
    for y in ys:
        moved = A * state.hidden + Q * normal()
        log_lik = -0.5 * ((y - moved.squeeze(-1)) / R) ** 2 - math.log(R * math.sqrt(2 * math.pi))
        log_z = log_z + factor + torch.logsumexp(state.log_weights + log_lik, -1)
        uniforms = torch.rand(runs, count, generator=g, dtype=DOUBLE)
        new, info = filter_update(state, moved, None, log_lik, uniforms, switches)
        factor = torch.zeros(runs, dtype=DOUBLE)
        if switches.resampling == "soft":
            # Renormalising divided the weights by this; the evidence takes it back: unbiased.
            weights = torch.log_softmax(state.log_weights + log_lik, -1)
            raw = unnormalized_correction(weights, info.ancestors, switches.alpha)
            factor = torch.logsumexp(raw, -1) - math.log(count)
        if mutant == "weights not gathered":
            weights = torch.log_softmax(state.log_weights + log_lik, -1)
            identity = torch.arange(count).expand(runs, -1)
            raw = unnormalized_correction(weights, identity, switches.alpha)
            new = new._replace(log_weights=raw.log_softmax(-1))
        if mutant == "weights counted twice":
            new = new._replace(log_weights=torch.log_softmax(state.log_weights + log_lik, -1))
        state = new
        means.append(mean_particle(state.hidden, state.log_weights).squeeze(-1))
    return torch.stack(means), log_z + factor


SWITCHES = {
    "soft": FilterSwitches(batch_norm="none"),
    "soft_0.1": FilterSwitches(batch_norm="none", alpha=0.1),
    "multinomial": FilterSwitches(batch_norm="none", resampling="multinomial"),
    "systematic": FilterSwitches(batch_norm="none", resampling="systematic"),
    "ess": FilterSwitches(batch_norm="none", resampling="systematic", ess_threshold=0.5),
    "none": FilterSwitches(batch_norm="none", resampling="none"),
}


def evidence_z(log_z, exact):
    """The estimate of the evidence itself (not its log) is unbiased at any K."""
    ratio = (log_z - exact).exp()
    return abs(float((ratio.mean() - 1) / (ratio.std() / math.sqrt(len(ratio)))))


@pytest.mark.parametrize("name", SWITCHES)
def test_evidence_is_unbiased(name):
    ys = observations()
    _, exact = kalman(ys)
    _, log_z = particle_filter(ys, 50, 4_000, SWITCHES[name], seed=2)
    assert evidence_z(log_z, exact) < stats.norm.isf(ALARM / len(SWITCHES) / 2)


@pytest.mark.parametrize("mutant", ["weights not gathered", "weights counted twice"])
def test_a_wrong_evidence_is_caught(mutant):
    ys = observations()
    _, exact = kalman(ys)
    _, log_z = particle_filter(ys, 50, 4_000, SWITCHES["soft"], 2, mutant)
    assert evidence_z(log_z, exact) > stats.norm.isf(ALARM / len(SWITCHES) / 2)


def mean_errors(name, mutant=None):
    """Root mean squared error of the filtered mean over runs and steps, at K = 100 and 1600."""
    ys = observations()
    exact, _ = kalman(ys)
    errors = []
    for count, runs in ((100, 600), (1600, 150)):
        means, _ = particle_filter(ys, count, runs, SWITCHES[name], count, mutant)
        errors.append(float((means - exact.unsqueeze(-1)).square().mean().sqrt()))
    return errors


@pytest.mark.parametrize("name", ["soft", "multinomial", "systematic"])
def test_error_of_the_mean_falls_as_one_over_root_k(name):
    """Sixteen times the particles, a quarter of the error.

    The squared errors' mean over 150 runs has a relative deviation of at most sqrt(2 / 150) = 0.12
    were the steps fully dependent, so the ratio of roots one of about 0.07: five deviations
    (1e-6, two-sided) are a factor of 1.4.
    """
    few, many = mean_errors(name)
    assert 4 / 1.4 < few / many < 4 * 1.4
    assert many < 0.05


def test_ungathered_weights_do_not_converge():
    few, many = mean_errors("soft", "weights not gathered")
    assert few / many < 4 / 1.4
