"""Bayes by Backprop for recurrent networks (Fortunato, Blundell, Vinyals 2017).

Every weight has a Gaussian posterior N(mu, softplus(rho)^2); the prior is a scale mixture of two
Gaussians. One sample of all weights serves a whole batch and all its time steps. Functions work
on named tensors with any leading (member) axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Named = Mapping[str, Tensor]

_LOG_ROOT_TAU = 0.5 * math.log(2.0 * math.pi)


class MixturePrior(NamedTuple):
    """pi N(0, sigma1^2) + (1 - pi) N(0, sigma2^2).

    Attributes:
        pi: weight of the first component, in (0, 1]; 1 is one Gaussian.
        log_sigma1: log of its standard deviation.
        log_sigma2: log of the second one's.
    """

    pi: float
    log_sigma1: float
    log_sigma2: float


class BayesianNetwork(nn.Module):
    """Posterior means and scale parameters of a network's weights, as two modules of its shape.

    Args:
        build: makes the deterministic network.
        rho: start of every rho; the posterior's standard deviation is softplus(rho).
    """

    def __init__(self, build: Callable[[], nn.Module], rho: float) -> None:
        super().__init__()
        self.mean = build()
        self.rho = build()
        for parameter in self.rho.parameters():
            nn.init.constant_(parameter, rho)


def split_posterior(parameters: Named) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split ``{"mean.x": ..., "rho.x": ...}`` into means and rhos under the network's names."""
    means = {n.removeprefix("mean."): v for n, v in parameters.items() if n.startswith("mean.")}
    rhos = {n.removeprefix("rho."): v for n, v in parameters.items() if n.startswith("rho.")}
    return means, rhos


def sample_weights(means: Named, rhos: Named, noise: Named) -> dict[str, Tensor]:
    """Draw theta = mu + softplus(rho) * noise (the reparameterisation trick)."""
    return {name: mean + F.softplus(rhos[name]) * noise[name] for name, mean in means.items()}


def log_gaussian(x: Tensor, mean: Tensor | float, sigma: Tensor) -> Tensor:
    """Log density of N(mean, sigma^2), elementwise."""
    return -_LOG_ROOT_TAU - sigma.log() - 0.5 * ((x - mean) / sigma).square()


def log_prior(x: Tensor, prior: MixturePrior) -> Tensor:
    """Log density of the scale mixture, elementwise."""
    # Filled on the device: a tensor made from a number on the host would wait for its copy.
    first = log_gaussian(x, 0.0, x.new_full((), prior.log_sigma1).exp())
    if prior.pi >= 1.0:
        return first
    second = log_gaussian(x, 0.0, x.new_full((), prior.log_sigma2).exp())
    return torch.logaddexp(math.log(prior.pi) + first, math.log1p(-prior.pi) + second)


def kl_sample(
    weights: Named, means: Named, rhos: Named, prior: MixturePrior, lead: int = 0
) -> Tensor:
    """One-sample estimate of KL(posterior || prior): log q(theta) - log p(theta), summed.

    Unbiased over draws of theta from the posterior. A mixture's KL has no closed form.

    Args:
        weights: theta, drawn with :func:`sample_weights`.
        means: mu.
        rhos: rho.
        prior: the prior.
        lead: number of leading axes that are kept.

    Returns:
        (...), one value a member.
    """
    terms = []
    for name, x in weights.items():
        log_q = log_gaussian(x, means[name], F.softplus(rhos[name]))
        terms.append((log_q - log_prior(x, prior)).flatten(lead).sum(-1))
    return torch.stack(terms).sum(0)


def sharpen(means: Named, gradients: Named, rate: float) -> dict[str, Tensor]:
    """Posterior sharpening: move the drawn weights along the batch's own likelihood gradient.

    phi -> phi - rate * g with g the gradient of the batch's negative log-likelihood at phi, held
    constant. The paper learns a rate for every weight; here it is one constant.
    """
    return {name: value - rate * gradients[name] for name, value in means.items()}
