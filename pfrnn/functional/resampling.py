"""Resampling: which particles survive, and the weights that they carry.

Soft resampling (the paper, section "Soft resampling") draws ancestors from the mixture
q = alpha w + (1 - alpha) / K and corrects each new weight by the importance ratio w / q **of its
ancestor**. With the factor 1/K the unnormalised corrected weights are unbiased; the renormalised
ones that the filter carries have a bias of order 1/K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import METHODS, check_choice, check_share
from pfrnn.functional.autocast import exporting
from pfrnn.functional.weights import LOG_ZERO, ess_of, normalize


class Resampled(NamedTuple):
    """Outcome of resampling.

    Attributes:
        ancestors: (..., K) int64.
        log_weights: (..., K), of the new particles, normalised.
    """

    ancestors: Tensor
    log_weights: Tensor


def soft_resample(log_weights: Tensor, uniforms: Tensor, alpha: float) -> Resampled:
    """Draw from q = alpha w + (1 - alpha) / K; weights w / q of the ancestor, renormalised.

    The paper's section "Soft resampling".

    Args:
        log_weights: (..., K), normalised here.
        uniforms: (..., K) in [0, 1); others count as the nearest in it.
        alpha: in (0, 1]; at 1 this is multinomial resampling.

    Returns:
        Ancestors (..., K) and the new particles' log-weights (..., K).

    Randomness:
        None: the uniforms decide.

    Gradients:
        Through the weights; ancestors have none. At alpha = 1 the new weights are constant and
        carry none (the paper's remark "alpha > 0" must read alpha < 1).

    Raises:
        TypeError: ``alpha`` is not a number.
        ConfigError: ``alpha`` outside (0, 1].
        ValueError: uniforms of another shape than the weights.
    """
    return resample(log_weights, uniforms, "soft", alpha)


def multinomial_resample(log_weights: Tensor, uniforms: Tensor) -> Resampled:
    """Draw K ancestors independently from w; new weights are 1/K and carry no gradient.

    The bootstrap filter's resampling (Gordon, Salmond and Smith 1993). Arguments and errors as
    :func:`soft_resample`.
    """
    return resample(log_weights, uniforms, "multinomial")


def systematic_resample(log_weights: Tensor, uniforms: Tensor) -> Resampled:
    """Draw with the points (u + j) / K, u being the first uniform: |copies - K w| < 1.

    The particles come out in the order of their ancestors; the new weights are 1/K and carry no
    gradient (Kitagawa 1996). Arguments and errors as :func:`soft_resample`; of each row's uniforms
    the first is used.

    Example:
        >>> systematic_resample(torch.zeros(4), torch.full((4,), 0.99999994)).ancestors
        tensor([0, 1, 2, 3])
    """
    return resample(log_weights, uniforms, "systematic")


def resample(
    log_weights: Tensor,
    uniforms: Tensor | None,
    method: str,
    alpha: float = 0.5,
    ess_threshold: float | None = None,
) -> Resampled:
    """Resample by ``method``, everywhere or where the effective sample size is low.

    Args:
        log_weights: (..., K), normalised here.
        uniforms: (..., K) in [0, 1), others count as the nearest in it; None with ``none``.
        method: ``soft``, ``multinomial``, ``systematic`` or ``none``.
        alpha: mixture of soft resampling, in (0, 1].
        ess_threshold: fraction of K below which a row is resampled, in (0, 1]; None always.

    Returns:
        Ancestors and log-weights (..., K); rows that are not resampled keep theirs.

    Raises:
        TypeError: ``alpha`` or ``ess_threshold`` is not a number.
        ConfigError: an unknown method, or a number out of range.
        ValueError: uniforms of another shape than the weights, or missing.
    """
    check_choice("method", method, METHODS)
    check_share("alpha", alpha)
    if ess_threshold is not None:
        check_share("ess_threshold", ess_threshold)
    shape = None if uniforms is None else tuple(uniforms.shape)
    if method != "none" and shape != tuple(log_weights.shape):
        raise ValueError(
            f"uniforms: expected the log-weights' shape (..., K) = {tuple(log_weights.shape)}, "
            f"got {shape}"
        )
    normalized = normalize(log_weights)
    ess = ess_of(normalized.detach().exp())
    return draw(normalized, uniforms, method, alpha, ess_threshold, ess)


def draw(
    log_weights: Tensor,
    uniforms: Tensor | None,
    method: str,
    alpha: float,
    ess_threshold: float | None,
    ess: Tensor,
) -> Resampled:
    """Do what :func:`resample` does, with normalised weights and their effective sample size."""
    if method == "none":
        return Resampled(identity_ancestors(log_weights), log_weights)
    if uniforms is None:
        raise ConfigError(f"resampling {method!r} needs uniforms of the log-weights' shape")
    if method == "soft" and alpha < 1.0:
        result = _soft(log_weights, uniforms, alpha)
    else:
        points = _comb(uniforms) if method == "systematic" else uniforms
        ancestors = ancestors_of(log_weights.exp(), points)
        constant = torch.full_like(log_weights, -math.log(log_weights.shape[-1])).detach()
        result = Resampled(ancestors, constant)
    if ess_threshold is None:
        return result
    needed = (ess < ess_threshold * log_weights.shape[-1]).unsqueeze(-1)
    return Resampled(
        torch.where(needed, result.ancestors, identity_ancestors(log_weights)),
        torch.where(needed, result.log_weights, log_weights),
    )


def _soft(log_weights: Tensor, uniforms: Tensor, alpha: float) -> Resampled:
    mixture = log_weights.exp() * alpha + (1.0 - alpha) / log_weights.shape[-1]
    ancestors = ancestors_of(mixture, uniforms)
    corrected = (log_weights - mixture.log()).gather(-1, ancestors)
    return Resampled(ancestors, normalize(corrected))


def _comb(uniforms: Tensor) -> Tensor:
    """Return the points (u + j) / K of systematic resampling."""
    count = uniforms.shape[-1]
    teeth = torch.arange(count, device=uniforms.device, dtype=uniforms.dtype)
    # u + j may round up to j + 1, which is the next particle's point.
    below = (teeth + 1.0) / count * (1.0 - 0.5 * torch.finfo(uniforms.dtype).eps)
    return torch.minimum((uniforms[..., :1] + teeth) / count, below)


def ancestors_of(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Draw ancestors by inverting the cumulative distribution.

    A particle of probability 0 is never drawn, also when rounding leaves the last cumulative sum
    below a uniform: the draw then falls on the last particle of positive probability.

    Args:
        probabilities: (..., K), summing to 1 up to rounding.
        uniforms: (..., J) in [0, 1).

    Returns:
        (..., J) int64 in [0, K). NaN probabilities give K - 1.
    """
    cumulative = probabilities.detach().cumsum(-1)
    last = cumulative[..., -1:] * (1.0 - torch.finfo(cumulative.dtype).eps)
    targets = torch.minimum(uniforms.to(cumulative.dtype), last)
    if exporting():  # ONNX has no searchsorted; the same numbers
        found = (cumulative.unsqueeze(-2) <= targets.unsqueeze(-1)).sum(-1)
    else:
        found = torch.searchsorted(cumulative, targets.contiguous(), right=True)
    return found.clamp(max=probabilities.shape[-1] - 1)


def unnormalized_correction(log_weights: Tensor, ancestors: Tensor, alpha: float) -> Tensor:
    """Return log(w / q) of the ancestors, the paper's corrected weight before renormalising.

    (1/K) sum_j exp(.)_j f(x_{a_j}) is an unbiased estimate of sum_i w_i f(x_i).

    Args:
        log_weights: (..., K), normalised here.
        ancestors: (..., K) int64.
        alpha: mixture of soft resampling, in (0, 1]; at 1 every correction is 1.

    Returns:
        (..., K), not normalised.
    """
    log_weights = normalize(log_weights)
    mixture = log_weights.exp() * alpha + (1.0 - alpha) / log_weights.shape[-1]
    return (log_weights.clamp(min=LOG_ZERO) - mixture.log()).gather(-1, ancestors)


def identity_ancestors(log_weights: Tensor) -> Tensor:
    """Return 0, ..., K - 1 in the shape of the weights: every particle continues itself."""
    count = log_weights.shape[-1]
    return torch.arange(count, device=log_weights.device).expand(log_weights.shape)


def gather(particles: Tensor, ancestors: Tensor) -> Tensor:
    """Copy each ancestor's particle.

    One ``index_select`` over flattened rows: faster than expanding the indices over H.

    Args:
        particles: (..., K, H).
        ancestors: (..., J) int64 in [0, K), whose values aren't looked at.

    Returns:
        (..., J, H).
    """
    rows = flat_rows(ancestors, particles.shape[-2])
    return select_rows(particles, rows, (*ancestors.shape, particles.shape[-1]))


def select_rows(particles: Tensor, rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Copy rows of particles (..., K, H) flattened to (rows, H), in the given shape."""
    return particles.flatten(0, -2).index_select(0, rows).view(shape)


def flat_rows(ancestors: Tensor, count: int) -> Tensor:
    """Return the rows of ancestors (..., J) in [0, count) in particles flattened to rows."""
    rows = ancestors.unsqueeze(0) if ancestors.dim() == 1 else ancestors.flatten(0, -2)
    starts = torch.arange(0, rows.shape[0] * count, count, device=rows.device)
    return (rows + starts.unsqueeze(-1)).flatten()
