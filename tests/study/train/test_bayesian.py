"""Bayes by Backprop: limits, the KL term, gradients, and a model whose posterior is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from pfrnn.study.plan import Setting
from pfrnn.study.train.bayes_by_backprop import (
    BayesianNetwork,
    MixturePrior,
    kl_sample,
    log_prior,
    sample_weights,
    split_posterior,
)
from pfrnn.study.train.bayesian import BayesianPath, mixture
from pfrnn.study.train.members import final_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Weights

from .worlds import CPU, OneStep, run, world

PAPER_PRIOR = MixturePrior(0.25, -1.0, -7.0)


pytestmark = pytest.mark.usefixtures("_double")


def bayesian(tmp_path, name="toy_regression", model="bayes_lstm", members=2, count=10, **patch):
    """A step of a Bayesian RNN."""
    problem, path = world(tmp_path, name, model, **patch)
    assert isinstance(path, BayesianPath)
    return OneStep(problem, path, final_members(Setting(0.01, 5.0, 0.0), members, 1, name), count)


@pytest.mark.parametrize(
    ("name", "model"), [("toy_regression", "bayes_lstm"), ("toy_classes", "bayes_gru")]
)
def test_no_posterior_spread_is_the_plain_network(tmp_path, name, model):
    """With scale 0 the forward pass and the likelihood's gradient are the plain RNN's."""
    one = bayesian(tmp_path, name, model)
    path, plain = one.path, PlainPath(one.path.spec, one.path.weights, one.path.training)
    named = one.population.parameters.items()
    leaves = {key: value.clone().requires_grad_() for key, value in named}
    for key in leaves:
        if key.startswith("rho."):
            # softplus(-800) is 0 in float64.
            leaves[key] = torch.full_like(leaves[key], -800.0)
    means, rhos = split_posterior(leaves)
    noise, _, _ = one.randomness()
    assert all(value.abs().max() > 0.1 for value in noise.values() if value[0].numel() > 20)
    weights = sample_weights(means, rhos, noise)
    predicted = path.forward(Weights(weights, {}), one.batch, None, True)
    gradients = torch.autograd.grad(predicted.loss.sum(), list(means.values()))
    same = {key: value.detach().requires_grad_() for key, value in means.items()}
    expected = plain.forward(Weights(same, {}), one.batch, None, True)
    expected_gradients = torch.autograd.grad(expected.loss.sum(), list(same.values()))
    assert torch.equal(predicted.loss, expected.loss)
    for found, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


def posterior(seed: int, count: int = 40):
    generator = torch.Generator().manual_seed(seed)
    means = {"w": 0.3 * torch.randn(count, generator=generator)}
    rhos = {"w": torch.randn(count, generator=generator) - 2.0}
    return means, rhos


def draws(means, rhos, prior, number, seed):
    generator = torch.Generator().manual_seed(seed)
    noise = {"w": torch.randn(number, *means["w"].shape, generator=generator)}
    wide = ({"w": means["w"].expand(number, -1)}, {"w": rhos["w"].expand(number, -1)})
    weights = sample_weights(*wide, noise)
    return kl_sample(weights, *wide, prior, lead=1)


def z_of_mean(sample: torch.Tensor, truth: float) -> float:
    return float((sample.mean() - truth) / (sample.std() / math.sqrt(len(sample))))


def test_kl_with_one_gaussian_is_the_closed_form():
    """False alarm 1e-6: |z| < 4.9; a mutant that forgets log sigma is far outside."""
    means, rhos = posterior(0)
    sigma = 0.4
    prior = MixturePrior(1.0, math.log(sigma), 0.0)
    exact = torch.distributions.kl_divergence(
        torch.distributions.Normal(means["w"], F.softplus(rhos["w"])),
        torch.distributions.Normal(0.0, sigma),
    ).sum()
    truth = float(exact)
    sample = draws(means, rhos, prior, 40_000, 1)
    assert abs(z_of_mean(sample, truth)) < 4.9
    mutant = sample + F.softplus(rhos["w"]).log().sum()
    assert abs(z_of_mean(mutant, truth)) > 50


def test_kl_with_the_papers_mixture_is_its_integral():
    """The mixture has no closed form; each weight's integral by quadrature is the truth."""
    means, rhos = posterior(2, 6)
    truth = 0.0
    for mean, rho in zip(means["w"], rhos["w"], strict=True):
        scale = F.softplus(rho)
        # The prior's narrow part (sigma 9e-4) needs a fine grid.
        x = torch.linspace(float(mean - 9 * scale), float(mean + 9 * scale), 2_000_001)
        log_q = torch.distributions.Normal(mean, scale).log_prob(x)
        integrand = log_q.exp() * (log_q - log_prior(x, PAPER_PRIOR))
        truth += float(torch.trapezoid(integrand, x))
    assert abs(z_of_mean(draws(means, rhos, PAPER_PRIOR, 200_000, 3), truth)) < 4.9


def test_prior_is_a_density():
    x = torch.cat([-torch.logspace(1, -7, 200_000), torch.logspace(-7, 1, 200_000)])
    total = torch.trapezoid(log_prior(x, PAPER_PRIOR).exp(), x)
    assert float(total) == pytest.approx(1.0, abs=1e-4)


def test_gradients_of_the_kl():
    means, rhos = posterior(4, 7)
    noise = torch.randn(7, generator=torch.Generator().manual_seed(5))

    def value(mean, rho):
        named = {"w": mean}, {"w": rho}
        return kl_sample(sample_weights(*named, {"w": noise}), *named, PAPER_PRIOR)

    leaves = [means["w"].requires_grad_(), rhos["w"].requires_grad_()]
    assert torch.autograd.gradcheck(value, leaves)


def fit_linear(design: torch.Tensor, y: torch.Tensor, prior_sigma: float):
    """Mean-field posterior of y = X w + N(0, 1) by the same functions that train the RNNs."""
    count = design.shape[1]
    mean = torch.zeros(count, requires_grad=True)
    rho = torch.full((count,), -1.0, requires_grad=True)
    optimiser = torch.optim.Adam([mean, rho], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 1500)
    generator = torch.Generator().manual_seed(0)
    prior = MixturePrior(1.0, math.log(prior_sigma), 0.0)
    samples = 64
    for _ in range(1500):
        noise = {"w": torch.randn(samples, count, generator=generator)}
        wide = {"w": mean.expand(samples, -1)}, {"w": rho.expand(samples, -1)}
        weights = sample_weights(*wide, noise)
        likelihood = 0.5 * (y - weights["w"] @ design.T).square().sum(-1)
        loss = (likelihood + kl_sample(weights, *wide, prior, lead=1)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return mean.detach(), F.softplus(rho.detach())


@pytest.mark.parametrize("correlated", [False, True])
def test_linear_model_recovers_its_posterior(correlated):
    """Orthogonal design: exact mean and scale. Correlated: the mean, and the mean-field scale."""
    generator = torch.Generator().manual_seed(7)
    rows = torch.randn(60, 3, generator=generator)
    design = torch.linalg.qr(rows).Q * torch.tensor([3.0, 5.0, 8.0])
    if correlated:
        design = design @ torch.tensor([[1.0, 0.9, 0.0], [0.0, 0.4, 0.6], [0.0, 0.0, 0.8]])
    y = design @ torch.tensor([0.7, -0.4, 0.2]) + torch.randn(60, generator=generator)
    precision = design.T @ design + torch.eye(3) / 0.5**2
    exact_mean = torch.linalg.solve(precision, design.T @ y)
    # The mean-field Gaussian nearest in KL has the precision's diagonal, not the covariance's.
    scale = precision.diagonal().rsqrt()
    mean, found = fit_linear(design, y, 0.5)
    # Adam's last steps leave noise of about one percent of a posterior deviation.
    assert ((mean - exact_mean).abs() / scale).max() < 0.05
    torch.testing.assert_close(found, scale, rtol=0.03, atol=0)
    if correlated:
        marginal = torch.linalg.inv(precision).diagonal().sqrt()
        assert (found / marginal).min() < 0.9


def test_one_weight_sample_serves_all_steps_and_batches_differ(tmp_path):
    one = bayesian(tmp_path)
    first, again, other = (one.randomness("train", 1, n)[0] for n in (0, 0, 1))
    alone, _, _ = one.path.training_randomness(one.members[1:], ("train", 1, 0), one.cut, CPU)
    for key in first:
        assert torch.equal(first[key], again[key])
        assert not torch.equal(first[key], other[key])
        assert not torch.equal(first[key][0], first[key][1])
        assert torch.equal(first[key][1], alone[key][0])


def test_loss_adds_the_kl_once_an_epoch(tmp_path):
    """Over an epoch of full batches the KL counts once: KL / n for each mean loss."""
    one = bayesian(tmp_path, members=1, count=16)
    loss = one.losses()[0].loss
    means, rhos = split_posterior(one.population.parameters)
    noise, _, _ = one.randomness()
    weights = sample_weights(means, rhos, noise)
    likelihood = one.path.forward(Weights(weights, {}), one.batch, None, True).loss
    divergence = kl_sample(weights, means, rhos, one.path.prior, lead=1)
    assert one.split.sequences == 40
    torch.testing.assert_close(loss - likelihood, divergence / 40, rtol=1e-9, atol=1e-9)
    assert float(divergence) > 0


def test_l2_leaves_the_posterior_scale_alone(tmp_path):
    path = bayesian(tmp_path).path
    assert path.decays("mean.core.cell.bias")
    assert not path.decays("rho.core.cell.bias")


def test_prediction_averages_samples(tmp_path):
    logits = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
    assert mixture(logits, "classification").exp().flatten().tolist() == pytest.approx([0.5, 0.5])
    assert mixture(torch.tensor([[1.0], [3.0]]), "regression").item() == 2.0
    one = bayesian(tmp_path, members=1, count=4)
    together = one.predict("v", 0, 0).output.prediction
    means, rhos = split_posterior(one.population.parameters)
    samples = one.path.evaluation_randomness(one.members, ("v", 0, 0), one.cut, CPU)
    assert len(samples) == 10
    parts = [
        one.path.forward(
            Weights(sample_weights(means, rhos, noise), {}), one.batch, None, False
        ).output.prediction
        for noise in samples
    ]
    torch.testing.assert_close(together, torch.stack(parts).mean(0))
    # The whole split is predicted with the same weights: the batch's number changes nothing.
    assert torch.equal(together, one.predict("v", 0, 1).output.prediction)


@pytest.mark.parametrize("sharpening", [False, True])
def test_bayesian_training_learns_and_widths_differ(tmp_path, sharpening):
    patch = {"bayesian": {"sharpening": sharpening}, "training": {"max_epochs": 15, "patience": 15}}
    problem, path = world(tmp_path, "toy_regression", "bayes_lstm", **patch)
    members = final_members(Setting(0.01, 5.0, 0.0), 2, 1, "toy_regression")
    state = run(problem, path, members, tmp_path)
    losses = [row["train_loss"] for row in state.history if row["member"] == 0]
    assert losses[-1] < losses[0]
    scores = [row["val_score"] for row in state.history if row["member"] == 0]
    assert min(scores) < 0.8 * scores[0]
    rho = state.best[0].parameters["rho.core.cell.weight_recurrent"]
    assert float(rho.std()) > 0


def test_build_starts_at_the_configured_scale(tmp_path):
    network = bayesian(tmp_path).path.build()
    assert isinstance(network, BayesianNetwork)
    assert all(bool((p == -4.0).all()) for p in network.rho.parameters())


def test_sharpened_weights_move_along_the_gradient_by_the_rate(tmp_path):
    """At rate 0 only the spread around the drawn weights is left, and no extra KL."""
    moves, costs = {}, {}
    for rate in (0.0, 0.02, 0.04):
        one = bayesian(tmp_path, bayesian={"sharpening": True, "sharpening_rate": rate})
        calls = []
        forward = one.path.forward

        def watched(weights, *rest, calls=calls, forward=forward):
            calls.append((weights.parameters, forward(weights, *rest)))
            return calls[-1][1]

        one.path.forward = watched
        loss = one.losses()[0].loss
        (drawn, _), (moved, sharpened) = calls
        name = "core.cell.weight_recurrent"
        moves[rate] = moved[name] - drawn[name]
        costs[rate] = (loss - sharpened.loss) * one.split.sequences
    one, two = (moves[rate] - moves[0.0] for rate in (0.02, 0.04))
    torch.testing.assert_close(two, 2 * one, rtol=1e-3, atol=1e-6)
    assert one.abs().max() > 1e-4
    # The KL of the move is the squared step over 2 sigma^2; the KL of the draw is the same in all.
    assert (costs[0.02] > costs[0.0]).all()
    extra = [costs[rate] - costs[0.0] for rate in (0.02, 0.04)]
    torch.testing.assert_close(extra[1], 4 * extra[0], rtol=1e-2, atol=1e-2)
