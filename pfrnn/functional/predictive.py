"""Predictive intervals of a scalar from weighted particles, and whether they cover.

The regression likelihood of the paper, p(y | particle) proportional to exp(-|y - y_i|), is a
Laplace density around each particle's prediction (in standardised units, scale 1). The predictive
distribution is therefore a mixture of Laplace densities; with scale 0 it is the particles alone,
whose intervals speak of the model's uncertainty about the mean and leave out the noise of y.

All functions here normalise the log-weights that they are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import check_level, check_number, check_positive
from pfrnn.functional.belief import quantiles
from pfrnn.functional.weights import normalize


class Interval(NamedTuple):
    """Bounds of a central interval, (...) each."""

    lower: Tensor
    upper: Tensor


class Coverage(NamedTuple):
    """How often intervals hold the target.

    Attributes:
        levels: (Q,), nominal probabilities.
        share: (Q,), share of the targets inside.
        width: (Q,), mean width.
        deviations: (Q,), (share - level) in binomial standard deviations of ``count`` independent
            targets; neighbours in time are not independent, so it overstates.
        count: targets judged.
    """

    levels: Tensor
    share: Tensor
    width: Tensor
    deviations: Tensor
    count: int  # type: ignore[assignment]  # shadows tuple.count


def mixture_cdf(y: Tensor, predictions: Tensor, log_weights: Tensor, scale: float) -> Tensor:
    """Return P(Y <= y) under a mixture of Laplace densities.

    Args:
        y: (...).
        predictions: (..., K), each particle's scalar prediction.
        log_weights: (..., K), normalised here.
        scale: of every Laplace density, above 0, in the predictions' unit.

    Returns:
        (...), in [0, 1].

    Raises:
        TypeError: ``scale`` is not a number.
        ConfigError: ``scale`` is not above 0.
    """
    check_positive("scale", scale)
    z = (y.unsqueeze(-1) - predictions) / scale
    half = 0.5 * torch.exp(-z.abs())
    return (normalize(log_weights).exp() * torch.where(z > 0, 1.0 - half, half)).sum(-1)


def predictive_quantile(
    predictions: Tensor, log_weights: Tensor, level: float, scale: float
) -> Tensor:
    """Return a quantile of the predictive distribution.

    Args:
        predictions: (..., K), each particle's scalar prediction.
        log_weights: (..., K), normalised here.
        level: in (0, 1).
        scale: of the Laplace densities; 0 takes the particles alone.

    Returns:
        (...).

    Gradients:
        None.

    Raises:
        TypeError: ``level`` or ``scale`` is not a number.
        ConfigError: ``level`` outside (0, 1), or ``scale`` below 0.
    """
    return _quantiles(predictions, log_weights, [level], scale)[..., 0]


def predictive_interval(
    predictions: Tensor, log_weights: Tensor, level: float = 0.9, scale: float = 1.0
) -> Interval:
    """Return the central interval that holds y with probability ``level``.

    Args:
        predictions: (..., K), each particle's scalar prediction.
        log_weights: (..., K), normalised here.
        level: in (0, 1).
        scale: of the Laplace density around each prediction: 1 in standardised units is the
            model that the ELBO trains; 0 leaves out the noise of y.

    Gradients and errors: as :func:`predictive_quantile`.

    Returns:
        Lower and upper bound, (...) each.

    Example:
        >>> one = predictive_interval(torch.zeros(1), torch.zeros(1), 0.5)
        >>> round(one.upper.item(), 4)  # the quartile of a Laplace density, log 2
        0.6931
    """
    check_level("level", level)
    tail = 0.5 * (1.0 - level)
    return Interval(*_quantiles(predictions, log_weights, [tail, 1.0 - tail], scale).unbind(-1))


@torch.no_grad()
def _quantiles(
    predictions: Tensor, log_weights: Tensor, levels: Sequence[float], scale: float
) -> Tensor:
    """Return quantiles (..., Q) of the mixture, in closed form, computed in double precision.

    Between neighbouring predictions the distribution function is A + (exp(R + z) - exp(L - z)) / 2
    at y = z scale: A is the weight on the left, L and R are the logs of the sums of
    w exp(x / scale) on the left and of w exp(-x / scale) on the right. A quadratic in exp(z).
    """
    for level in levels:
        check_level("level", level)
    check_number("scale", scale, "a number, 0 or more", lambda x: 0 <= x < math.inf)
    wanted = torch.tensor(levels, device=predictions.device, dtype=torch.float64)
    if scale == 0:
        return quantiles(predictions, log_weights, wanted)
    z, index = (predictions.double() / scale).sort(dim=-1)
    log_w = normalize(log_weights.double()).gather(-1, index)
    nothing = torch.full_like(z[..., :1], -torch.inf)
    weight = torch.cat([torch.zeros_like(nothing), log_w.exp().cumsum(-1)], -1)
    left = torch.cat([nothing, torch.logcumsumexp(log_w + z, -1)], -1)
    right = torch.cat([nothing, torch.logcumsumexp((log_w - z).flip(-1), -1)], -1).flip(-1)
    at = weight[..., 1:] + 0.5 * ((right[..., 1:] + z).exp() - (left[..., 1:] - z).exp())
    place = (at.unsqueeze(-1) < wanted).sum(-2)
    above, left, right = (one.gather(-1, place) for one in (weight, left, right))
    above = above - wanted
    root = (above.square() + (left + right).exp()).sqrt().clamp(min=1e-300)
    found = torch.where(above > 0, left - (above + root).log(), (root - above).log() - right)
    return (found * scale).to(predictions.dtype)


def coverage(
    predictions: Tensor,
    log_weights: Tensor,
    target: Tensor,
    levels: Sequence[float] | Tensor = (0.5, 0.8, 0.9, 0.95),
    scale: float = 1.0,
    mask: Tensor | None = None,
) -> Coverage:
    """Diagnose calibration: the share of targets inside the intervals of each level.

    Args:
        predictions: (..., K), each particle's scalar prediction.
        log_weights: (..., K), normalised here.
        target: (...).
        levels: nominal probabilities, in (0, 1): a sequence, a tensor (Q,) or an array.
        scale: of the Laplace densities; 0 takes the particles alone.
        mask: (...) bool, the targets that count; None means all.

    Returns:
        One entry a level, float64 on the CPU.

    Raises:
        TypeError: a level or ``scale`` is not a number.
        ConfigError: no target counts, a level outside (0, 1), or ``scale`` below 0.
    """
    nominal = torch.as_tensor(levels, dtype=torch.float64, device="cpu")
    keep = torch.ones_like(target, dtype=torch.bool) if mask is None else mask
    count = int(keep.sum())
    if count == 0:
        raise ConfigError("coverage: expected at least one target, got none (the mask is empty)")
    shares, widths = [], []
    for level in nominal.tolist():
        lower, upper = predictive_interval(predictions, log_weights, level, scale)
        inside = (target >= lower) & (target <= upper)
        shares.append(inside[keep].double().mean())
        widths.append((upper - lower)[keep].double().mean())
    share = torch.stack(shares).cpu()
    deviations = (share - nominal) / (nominal * (1 - nominal) / count).sqrt()
    return Coverage(nominal, share, torch.stack(widths).cpu(), deviations, count)
