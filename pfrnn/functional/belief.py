"""Reading a belief: moments, quantiles and modes of weighted particles.

All functions here normalise the log-weights that they are given.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.arguments import check_count, check_positive
from pfrnn.functional.weights import normalize


def mean_particle(particles: Tensor, log_weights: Tensor) -> Tensor:
    """Return sum_i w_i x_i, the paper's averaged particle.

    Args:
        particles: (..., K, D).
        log_weights: (..., K), normalised here.

    Returns:
        (..., D), in the wider of the two dtypes.

    Example:
        >>> mean_particle(torch.tensor([[0.0], [4.0]]), torch.tensor([7.0, 7.0]))
        tensor([2.])
    """
    return weighted_mean(particles, normalize(log_weights).exp())


def weighted_mean(particles: Tensor, weights: Tensor) -> Tensor:
    """Return sum_i w_i x_i of weights (..., K) that sum to 1."""
    dtype = torch.promote_types(particles.dtype, weights.dtype)
    return (weights.to(dtype).unsqueeze(-2) @ particles.to(dtype)).squeeze(-2)


def covariance(particles: Tensor, log_weights: Tensor) -> Tensor:
    """Return sum_i w_i (x_i - mean)(x_i - mean)'.

    Args:
        particles: (..., K, D).
        log_weights: (..., K), normalised here.

    Returns:
        (..., D, D), in the wider of the two dtypes.
    """
    weights = normalize(log_weights).exp()
    centred = particles - weighted_mean(particles, weights).unsqueeze(-2)
    return (centred * weights.unsqueeze(-1)).transpose(-2, -1) @ centred


def quantiles(values: Tensor, log_weights: Tensor, levels: Tensor) -> Tensor:
    """Return quantiles of a scalar under the weights: the smallest value with CDF >= level.

    Args:
        values: (..., K), a scalar of each particle.
        log_weights: (..., K), normalised here.
        levels: (Q,) in (0, 1]; what lies outside gives the smallest or largest value.

    Returns:
        (..., Q).

    Example:
        >>> quantiles(torch.tensor([3.0, 1.0]), torch.zeros(2), torch.tensor([0.9]))
        tensor([3.])
    """
    ordered, index = values.sort(dim=-1)
    cumulative = normalize(log_weights).exp().gather(-1, index).cumsum(-1)
    # Divide by the last sum: rounding must not leave level 1 above every entry.
    cumulative = cumulative / cumulative[..., -1:]
    wanted = levels.to(cumulative).expand(*cumulative.shape[:-1], -1).contiguous()
    found = torch.searchsorted(cumulative, wanted).clamp(max=values.shape[-1] - 1)
    return ordered.gather(-1, found)


class Modes(NamedTuple):
    """Modes of a belief, heaviest first.

    Attributes:
        points: (..., J, D), the particle at each mode.
        mass: (..., J), total weight of the particles that belong to it; 0 for absent modes.
    """

    points: Tensor
    mass: Tensor


@torch.no_grad()
def modes(points: Tensor, log_weights: Tensor, bandwidth: float, count: int = 4) -> Modes:
    """Find modes of particles in a low-dimensional space (a picture's plane).

    Not in the paper; for pictures of a belief. Greedy: the particle with the largest weighted
    Gaussian kernel density is a mode; it takes the particles within two bandwidths; the search
    goes on among the rest.

    Args:
        points: (..., K, D), e.g. the predicted position of each particle.
        log_weights: (..., K), normalised here.
        bandwidth: of the kernel, above 0, in the points' unit.
        count: the number of modes J, at least 1; absent ones have mass 0.

    Returns:
        J points and their mass, see :class:`Modes`.

    Gradients:
        None.

    Raises:
        TypeError: ``bandwidth`` is not a number, or ``count`` not an int.
        ConfigError: ``bandwidth`` is not above 0, or ``count`` below 1.
    """
    check_positive("bandwidth", bandwidth)
    check_count("count", count)
    distance = torch.cdist(points, points)
    left = normalize(log_weights).exp()
    kernel = torch.exp(-0.5 * (distance / bandwidth).square())
    found, masses = [], []
    for _ in range(count):
        density = (kernel @ left.unsqueeze(-1)).squeeze(-1)
        # Only particles that still have weight may become a mode.
        best = torch.where(left > 0, density, -1.0).argmax(-1, keepdim=True).unsqueeze(-1)
        near = distance.gather(-2, best.expand(*best.shape[:-1], points.shape[-2]))
        member = near.squeeze(-2) <= 2.0 * bandwidth
        masses.append(torch.where(member, left, 0.0).sum(-1))
        found.append(points.gather(-2, best.expand(*best.shape[:-1], points.shape[-1])))
        left = torch.where(member, 0.0, left)
    mass = torch.stack(masses, -1)
    order = mass.argsort(-1, descending=True)
    places = torch.cat(found, -2)
    return Modes(
        places.gather(-2, order.unsqueeze(-1).expand(places.shape)), mass.gather(-1, order)
    )
