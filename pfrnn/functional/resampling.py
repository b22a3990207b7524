"""Resampling: which particles survive, and the weights that they carry.

Soft resampling (the paper, section "Soft resampling") draws ancestors from the mixture
q = alpha w + (1 - alpha) / K and corrects each new weight by the importance ratio w / q **of its
ancestor**. With the factor 1/K the unnormalised corrected weights are unbiased; the renormalised
ones that the filter carries have a bias of order 1/K.

The functions for users refuse uniforms outside [0, 1). Inside a filter's loop that would cost more
than the draw: :func:`draw` doesn't look, for the loop has looked at those of all steps at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import METHODS, check_choice, check_share, wrong_type
from pfrnn.functional.uniforms import check_uniforms
from pfrnn.functional.weights import LOG_ZERO, lift, normalize


class Resampled(NamedTuple):
    """Outcome of resampling.

    Attributes:
        ancestors: (..., K) int64.
        log_weights: (..., K), of the new particles, normalised.
    """

    ancestors: Tensor
    log_weights: Tensor


def _check_draws(log_weights: Tensor, uniforms: Tensor) -> None:
    """Refuse uniforms of another shape than the weights': they would draw another number."""
    if not isinstance(uniforms, Tensor):
        raise wrong_type("uniforms", "a tensor (..., K)", uniforms)
    if uniforms.shape != log_weights.shape:
        raise ValueError(
            f"uniforms: expected the log-weights' shape (..., K) = {tuple(log_weights.shape)}, "
            f"got {tuple(uniforms.shape)}"
        )
    check_uniforms(uniforms)


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
    found = torch.searchsorted(cumulative, targets.contiguous(), right=True)
    return found.clamp(max=probabilities.shape[-1] - 1)


def soft_resample(log_weights: Tensor, uniforms: Tensor, alpha: float) -> Resampled:
    """Draw from q = alpha w + (1 - alpha) / K; weights w / q of the ancestor, renormalised.

    The paper's section "Soft resampling".

    Args:
        log_weights: (..., K), normalised.
        uniforms: (..., K) in [0, 1).
        alpha: in (0, 1]; at 1 this is multinomial resampling.

    Returns:
        Ancestors (..., K) and the new particles' log-weights (..., K).

    Randomness:
        None: the uniforms decide.

    Gradients:
        Through the weights; ancestors have none. At alpha = 1 the new weights are constant and
        carry none (the paper's remark "alpha > 0" must read alpha < 1).

    Raises:
        TypeError: ``alpha`` is no number, or ``uniforms`` no tensor.
        ConfigError: ``alpha`` outside (0, 1].
        ValueError: uniforms of another shape, or outside [0, 1) (looked at on the CPU in eager
            mode).
    """
    check_share("alpha", alpha)
    _check_draws(log_weights, uniforms)
    return _soft(log_weights, uniforms, alpha)


def _soft(log_weights: Tensor, uniforms: Tensor, alpha: float) -> Resampled:
    if alpha >= 1.0:
        return _multinomial(log_weights, uniforms)
    count = log_weights.shape[-1]
    mixture = log_weights.exp() * alpha + (1.0 - alpha) / count
    ancestors = ancestors_of(mixture, uniforms)
    corrected = (log_weights - mixture.log()).gather(-1, ancestors)
    return Resampled(ancestors, normalize(corrected))


def unnormalized_correction(log_weights: Tensor, ancestors: Tensor, alpha: float) -> Tensor:
    """Return log(w / q) of the ancestors, the paper's corrected weight before renormalising.

    (1/K) sum_j exp(.)_j f(x_{a_j}) is an unbiased estimate of sum_i w_i f(x_i).

    Args:
        log_weights: (..., K), normalised.
        ancestors: (..., K) int64.
        alpha: mixture of soft resampling, in (0, 1]; at 1 every correction is 1.

    Returns:
        (..., K), not normalised.

    Raises:
        TypeError: ``alpha`` is no number.
        ConfigError: ``alpha`` outside (0, 1].
    """
    check_share("alpha", alpha)
    log_weights = lift(log_weights)
    count = log_weights.shape[-1]
    mixture = log_weights.exp() * alpha + (1.0 - alpha) / count
    return (log_weights.clamp(min=LOG_ZERO) - mixture.log()).gather(-1, ancestors)


def multinomial_resample(log_weights: Tensor, uniforms: Tensor) -> Resampled:
    """Draw K ancestors independently from w; new weights are 1/K and carry no gradient.

    The bootstrap filter's resampling (Gordon, Salmond and Smith 1993).

    Args:
        log_weights: (..., K), normalised.
        uniforms: (..., K) in [0, 1).

    Returns:
        Ancestors (..., K) and log-weights (..., K).

    Raises:
        TypeError: ``uniforms`` is no tensor.
        ValueError: uniforms of another shape, or outside [0, 1) (looked at on the CPU in eager
            mode).
    """
    _check_draws(log_weights, uniforms)
    return _multinomial(log_weights, uniforms)


def _multinomial(log_weights: Tensor, uniforms: Tensor) -> Resampled:
    ancestors = ancestors_of(log_weights.exp(), uniforms)
    return Resampled(ancestors, _constant(log_weights))


def systematic_resample(log_weights: Tensor, uniforms: Tensor) -> Resampled:
    """Draw with the points (u + j) / K, u being the first uniform: |copies - K w| < 1.

    The particles come out in the order of their ancestors; the new weights are 1/K and carry no
    gradient (Kitagawa 1996).

    Args:
        log_weights: (..., K), normalised.
        uniforms: (..., K) in [0, 1), of which the first of each row is used.

    Returns:
        Ancestors (..., K) and log-weights (..., K).

    Raises:
        TypeError: ``uniforms`` is no tensor.
        ValueError: uniforms of another shape, or outside [0, 1) (looked at on the CPU in eager
            mode).
    """
    _check_draws(log_weights, uniforms)
    return _systematic(log_weights, uniforms)


def _systematic(log_weights: Tensor, uniforms: Tensor) -> Resampled:
    count = log_weights.shape[-1]
    comb = torch.arange(count, device=log_weights.device, dtype=log_weights.dtype)
    points = (uniforms[..., :1].to(log_weights.dtype) + comb) / count
    return Resampled(ancestors_of(log_weights.exp(), points), _constant(log_weights))


def _constant(log_weights: Tensor) -> Tensor:
    return torch.full_like(log_weights, -math.log(log_weights.shape[-1])).detach()


def identity_ancestors(log_weights: Tensor) -> Tensor:
    """Return 0, ..., K - 1 in the shape of the weights: every particle continues itself."""
    count = log_weights.shape[-1]
    return torch.arange(count, device=log_weights.device).expand(log_weights.shape)


def resample(
    log_weights: Tensor,
    uniforms: Tensor | None,
    method: str,
    alpha: float = 0.5,
    ess_threshold: float | None = None,
    ess: Tensor | None = None,
) -> Resampled:
    """Resample by ``method``, everywhere or where the effective sample size is low.

    Args:
        log_weights: (..., K), normalised.
        uniforms: (..., K) in [0, 1); may be None for ``none``.
        method: ``soft``, ``multinomial``, ``systematic`` or ``none``.
        alpha: mixture of ``soft``, in (0, 1].
        ess_threshold: a fraction of K, in (0, 1]; None resamples every row.
        ess: (...), effective sample sizes; needed with ``ess_threshold``.

    Returns:
        Ancestors (..., K) and the new particles' log-weights (..., K); where nothing is resampled,
        0, ..., K - 1 and the weights as they were.

    Gradients:
        Of ``soft`` through the weights (see :func:`soft_resample`); of the others none where they
        resample.

    Raises:
        TypeError: ``alpha`` or ``ess_threshold`` is no number, or ``uniforms`` no tensor.
        ConfigError: an unknown method, a number out of range, or an argument that the method needs
            is missing.
        ValueError: uniforms of another shape, or outside [0, 1) (looked at on the CPU in eager
            mode).
    """
    check_choice("method", method, METHODS)
    check_share("alpha", alpha)
    if ess_threshold is not None:
        check_share("ess_threshold", ess_threshold)
    if uniforms is not None:
        _check_draws(log_weights, uniforms)
    return draw(log_weights, uniforms, method, alpha, ess_threshold, ess)


def draw(
    log_weights: Tensor,
    uniforms: Tensor | None,
    method: str,
    alpha: float = 0.5,
    ess_threshold: float | None = None,
    ess: Tensor | None = None,
) -> Resampled:
    """Do what :func:`resample` does, without a look at the uniforms' values: for loops."""
    if method == "none":
        return Resampled(identity_ancestors(log_weights), log_weights)
    if uniforms is None:
        raise ConfigError(f"resampling {method!r} needs uniforms of the log-weights' shape")
    if method == "soft":
        result = _soft(log_weights, uniforms, alpha)
    elif method == "multinomial":
        result = _multinomial(log_weights, uniforms)
    elif method == "systematic":
        result = _systematic(log_weights, uniforms)
    else:
        raise ConfigError(f"resampling: expected one of {', '.join(METHODS)}, got {method!r}")
    if ess_threshold is None:
        return result
    if ess is None:
        raise ConfigError("ess_threshold needs the effective sample sizes (ess)")
    needed = (ess < ess_threshold * log_weights.shape[-1]).unsqueeze(-1)
    return Resampled(
        torch.where(needed, result.ancestors, identity_ancestors(log_weights)),
        torch.where(needed, result.log_weights, log_weights),
    )


def gather(particles: Tensor, ancestors: Tensor) -> Tensor:
    """Copy each ancestor's particle.

    Values of ancestors aren't looked at: one outside [0, K) fails, or takes another row's particle.
    One ``index_select`` over flattened rows: faster than expanding the indices over H.

    Args:
        particles: (..., K, H).
        ancestors: (..., J) int64 in [0, K).

    Returns:
        (..., J, H).
    """
    flat = flat_rows(ancestors, particles.shape[-2])
    return particles.flatten(0, -2).index_select(0, flat).view(*ancestors.shape, -1)


def flat_rows(ancestors: Tensor, count: int | None = None) -> Tensor:
    """Return the rows of ancestors in particles flattened to (rows, H).

    Args:
        ancestors: (..., J) int64 in [0, count).
        count: K; J when None.
    """
    rows = ancestors.flatten(0, -2) if ancestors.dim() > 1 else ancestors.unsqueeze(0)
    width = ancestors.shape[-1] if count is None else count
    starts = torch.arange(0, rows.shape[0] * width, width, device=rows.device)
    return (rows + starts.unsqueeze(-1)).flatten()
