"""Predictive intervals of a scalar from weighted particles, and whether they cover.

The regression likelihood of the paper, p(y | particle) proportional to exp(-|y - y_i|), is a
Laplace density around each particle's prediction (in standardised units, scale 1). The predictive
distribution is therefore a mixture of Laplace densities; with scale 0 it is the particles alone,
whose intervals speak of the model's uncertainty about the mean and leave out the noise of y.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import (
    check_level,
    check_not_negative,
    check_positive,
    wrong_type,
)
from pfrnn.functional.belief import quantiles
from pfrnn.functional.weights import LOG_ZERO, lift

# Halvings of the bracket: 2**-60 of its width is below a double's resolution.
_HALVINGS = 60


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
        log_weights: (..., K), normalised.
        scale: of every Laplace density, above 0, in the predictions' unit.

    Returns:
        (...), in [0, 1].

    Raises:
        TypeError: ``scale`` is no number.
        ConfigError: ``scale`` is not above 0.
    """
    check_positive("scale", scale)
    return _mixture_cdf(y, predictions, log_weights, scale)


def _mixture_cdf(y: Tensor, predictions: Tensor, log_weights: Tensor, scale: float) -> Tensor:
    z = (y.unsqueeze(-1) - predictions) / scale
    half = 0.5 * torch.exp(-z.abs())
    return (log_weights.exp() * torch.where(z > 0, 1.0 - half, half)).sum(-1)


def predictive_quantile(
    predictions: Tensor, log_weights: Tensor, level: float, scale: float
) -> Tensor:
    """Return a quantile of the predictive distribution.

    Args:
        predictions: (..., K), each particle's scalar prediction.
        log_weights: (..., K), normalised.
        level: in (0, 1).
        scale: of the Laplace densities; 0 takes the particles alone.

    Returns:
        (...).

    Gradients:
        None.

    Raises:
        TypeError: ``level`` or ``scale`` is no number.
        ConfigError: ``level`` outside (0, 1), or ``scale`` below 0.
    """
    check_level("level", level)
    check_not_negative("scale", scale)
    with torch.no_grad():
        log_weights = lift(log_weights).clamp(min=LOG_ZERO)
        if scale == 0.0:
            wanted = torch.tensor([level], device=predictions.device, dtype=predictions.dtype)
            return quantiles(predictions, log_weights, wanted).squeeze(-1)
        # The mixture's quantile lies between its components' smallest and largest.
        tail = torch.tensor(2.0 * min(level, 1.0 - level), dtype=predictions.dtype).log()
        shift = float(tail) * scale * (1.0 if level < 0.5 else -1.0)
        low = predictions.amin(-1) + shift
        high = predictions.amax(-1) + shift
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = _mixture_cdf(middle, predictions, log_weights, scale) < level
            low = torch.where(below, middle, low)
            high = torch.where(below, high, middle)
        return 0.5 * (low + high)


def predictive_interval(
    predictions: Tensor, log_weights: Tensor, level: float = 0.9, scale: float = 1.0
) -> Interval:
    """Return the central interval that holds y with probability ``level``.

    Args:
        predictions: (..., K), each particle's scalar prediction.
        log_weights: (..., K), normalised.
        level: in (0, 1).
        scale: of the Laplace density around each prediction: 1 in standardised units is the
            model that the ELBO trains; 0 leaves out the noise of y.

    Returns:
        Lower and upper bound, (...) each.

    Gradients:
        None.

    Raises:
        TypeError: ``level`` or ``scale`` is no number.
        ConfigError: ``level`` outside (0, 1), or ``scale`` below 0.

    Example:
        >>> one = predictive_interval(torch.zeros(1), torch.zeros(1), 0.5)
        >>> round(one.upper.item(), 4)  # the quartile of a Laplace density, log 2
        0.6931
    """
    check_level("level", level)
    check_not_negative("scale", scale)
    tail = 0.5 * (1.0 - level)
    return Interval(
        predictive_quantile(predictions, log_weights, tail, scale),
        predictive_quantile(predictions, log_weights, 1.0 - tail, scale),
    )


def _listed(levels: Any) -> Sequence[float]:
    """Return probabilities as a sequence; a tensor and an array of one axis are one."""
    listed = levels.tolist() if hasattr(levels, "tolist") else levels
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise wrong_type("levels", "a sequence of numbers in (0, 1)", levels)
    return listed


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
        log_weights: (..., K), normalised.
        target: (...).
        levels: nominal probabilities, in (0, 1): a sequence, a tensor (Q,) or an array.
        scale: of the Laplace densities; 0 takes the particles alone.
        mask: (...) bool, the targets that count; None means all.

    Returns:
        One entry a level, float64 on the CPU.

    Raises:
        TypeError: ``levels`` is no sequence of numbers, or ``scale`` no number.
        ConfigError: no target counts, a level outside (0, 1), or ``scale`` below 0.
    """
    levels = _listed(levels)
    for level in levels:
        check_level("levels", level)
    check_not_negative("scale", scale)
    keep = torch.ones_like(target, dtype=torch.bool) if mask is None else mask
    count = int(keep.sum())
    if count == 0:
        raise ConfigError("coverage: expected at least one target, got none (the mask is empty)")
    shares, widths = [], []
    for level in levels:
        lower, upper = predictive_interval(predictions, log_weights, level, scale)
        inside = (target >= lower) & (target <= upper)
        shares.append(inside[keep].double().mean())
        widths.append((upper - lower)[keep].double().mean())
    nominal = torch.tensor(levels, dtype=torch.float64)
    share = torch.stack(shares).cpu()
    deviations = (share - nominal) / (nominal * (1 - nominal) / count).sqrt()
    return Coverage(nominal, share, torch.stack(widths).cpu(), deviations, count)
