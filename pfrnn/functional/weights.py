"""Particle weights in log space: normalising, effective sample size, entropy."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# A weight of exactly zero is carried as this log-weight: exp() of it is 0 in every float type, and
# sums and differences of it stay finite, so that a set of particles that all have weight zero
# becomes uniform instead of NaN, and no gradient multiplies 0 by infinity.
LOG_ZERO = -1e30


def normalize(unnormalized_log_weights: Tensor) -> Tensor:
    """Normalise log-weights over the last axis: sum of exp is 1.

    Args:
        unnormalized_log_weights: (..., K); -inf counts as weight 0; float16 and bfloat16 are
            lifted to float32. When every weight of a row is 0, the row becomes uniform.

    Returns:
        (..., K), finite unless the input holds NaN or +inf.

    Gradients:
        Those of log-softmax; 0 for entries at or below the floor.

    Example:
        >>> normalize(torch.tensor([0.0, float("-inf")])).exp()
        tensor([1., 0.])
    """
    x = lift(unnormalized_log_weights)
    return torch.log_softmax(x.clamp(min=LOG_ZERO), dim=-1)


def lift(x: Tensor) -> Tensor:
    """Convert half precision to float32; leave float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def uniform_log_weights(
    *shape: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return log(1/K) in the given shape.

    Args:
        *shape: of the result; its last axis is K, at least 1.
        device: of the result.
        dtype: of the result.
    """
    return torch.full(shape, -math.log(shape[-1]), device=device, dtype=dtype)


def effective_sample_size(log_weights: Tensor) -> Tensor:
    """Return 1 / sum of squared weights, in [1, K] (Kong, Liu and Wong 1994).

    Args:
        log_weights: (..., K), normalised here; half precision is lifted to float32.

    Returns:
        (...).

    Example:
        >>> effective_sample_size(torch.zeros(4))
        tensor(4.)
    """
    return ess_of(normalize(log_weights).exp())


def ess_of(weights: Tensor) -> Tensor:
    """Return the effective sample size of weights (..., K) that sum to 1."""
    return weights.square().sum(-1).reciprocal().clamp(1.0, float(weights.shape[-1]))


def entropy(log_weights: Tensor) -> Tensor:
    """Return the entropy of the weights in nats, in [0, log K].

    Args:
        log_weights: (..., K), normalised here; a weight of 0 contributes 0; half precision is
            lifted to float32.

    Returns:
        (...).

    Example:
        >>> entropy(torch.tensor([0.0, float("-inf")])).item()
        0.0
    """
    log_weights = normalize(log_weights)
    return (log_weights.exp() * -log_weights).sum(-1)
