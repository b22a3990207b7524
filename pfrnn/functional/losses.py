"""Losses, per member: the prediction loss, the ELBO, and their sum.

Reductions are explicit. The paper sums over time; over the batch the mean is taken (the paper is
silent). Leading axes are never reduced, so a population gets one loss a member.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import check_choice
from pfrnn.functional.weights import lift

Kind = Literal["regression", "classification"]
Reduction = Literal["sum", "mean"]
KINDS, REDUCTIONS = ("regression", "classification"), ("sum", "mean")


class Outputs(NamedTuple):
    """A mask with what is counted of it, once for several losses (:func:`count_outputs`).

    Attributes:
        mask: (T, ..., N) bool, steps that have an output.
        each: (..., N), outputs of each sequence.
        sequences: (...), sequences that have an output, at least 1.
    """

    mask: Tensor
    each: Tensor
    sequences: Tensor


def count_outputs(mask: Tensor) -> Outputs:
    """Count a mask's outputs, (T, ..., N)."""
    each = mask.sum(0)
    return Outputs(mask, each, (each > 0).sum(-1).clamp(min=1))


def prediction_loss(
    prediction: Tensor,
    target: Tensor,
    kind: Kind,
    *,
    mask: Tensor | Outputs | None = None,
    coordinates: Reduction = "mean",
    coordinate_weights: Tensor | None = None,
    time_weights: Tensor | None = None,
    time: Reduction = "sum",
    batch: Reduction = "mean",
) -> Tensor:
    """Return L_pred, the squared error or the cross-entropy (the paper's equation for L_pred).

    Args:
        prediction: (T, ..., N, D) values, or (T, ..., N, C) logits.
        target: (T, ..., N, D) values, or (T, ..., N) int64 classes. Where the mask is False it may
            be anything, NaN or -100 too.
        kind: ``regression`` or ``classification``.
        mask: (T, ..., N) bool, steps that have an output, or :class:`Outputs`; None means all.
        coordinates: how squared errors of one target's D coordinates are reduced.
        coordinate_weights: (D,), factors on the squared errors (the release: 0.1 on the heading);
            regression only.
        time_weights: (T,), factors on the steps (:func:`exponential_time_weights`).
        time: reduction over time; ``mean`` divides by the number of a sequence's outputs.
        batch: reduction over sequences that have an output.

    Returns:
        (...), one value a member; a scalar without leading axes.

    Raises:
        ConfigError: an unknown kind or reduction, or weights that the kind has no use for.
        ValueError: a target, mask or weights that don't fit the prediction.

    Example:
        >>> error = torch.zeros(3, 2, 1)
        >>> prediction_loss(error + 2.0, error, "regression")
        tensor(12.)
    """
    check_choice("kind", kind, KINDS)
    check_choice("coordinates", coordinates, REDUCTIONS)
    if kind == "classification" and coordinate_weights is not None:
        raise ConfigError("coordinate_weights: expected None with classification; leave them out")
    known = _counted(mask, prediction.shape[:-1])
    if kind == "classification":
        _check_shape("target", target, prediction.shape[:-1])
        steps = _cross_entropy(prediction, _known(target, known))
    else:
        _check_shape("target", target, prediction.shape)
        squared = (lift(prediction) - _known(target, known)).square()
        if coordinate_weights is not None:
            _check_shape("coordinate_weights", coordinate_weights, prediction.shape[-1:])
            squared = squared * coordinate_weights
        steps = squared.mean(-1) if coordinates == "mean" else squared.sum(-1)
    if time_weights is not None:
        steps = steps * _over_time(time_weights, steps)
    return reduce_loss(steps, known, time, batch)


def elbo_loss(
    particle_predictions: Tensor,
    target: Tensor,
    kind: Kind,
    *,
    mask: Tensor | Outputs | None = None,
    form: Literal["joint", "per_coordinate"] = "joint",
    coordinate_weights: Tensor | None = None,
    time_weights: Tensor | None = None,
    time: Reduction = "sum",
    batch: Reduction = "mean",
) -> Tensor:
    """Return L_ELBO = - sum_t log (1/K) sum_i p(y_t | particle i) (the paper's equation).

    For classification p is the probability of the true class (what "CrossEntropy" can only
    mean); for regression p = exp(-||y - y_i||), the norm over the target's coordinates.

    Args:
        particle_predictions: (T, ..., N, K, D) values, or (T, ..., N, K, C) logits.
        target: (T, ..., N, D) values, or (T, ..., N) int64 classes. Where the mask is False it may
            be anything, NaN or -100 too.
        kind: ``regression`` or ``classification``.
        mask: (T, ..., N) bool, steps that have an output, or :class:`Outputs`; None means all.
        form: ``joint`` as above, or ``per_coordinate`` (the release, regression only):
            exp(-d_t e^2) of each coordinate by itself, then the mean over coordinates, with d_t
            the time weights.
        coordinate_weights: (D,), factors on the coordinates' terms; ``per_coordinate`` only.
        time_weights: (T,): inside the exponential for ``per_coordinate``, else factors.
        time: reduction over time; ``mean`` divides by the number of a sequence's outputs.
        batch: reduction over sequences that have an output.

    Returns:
        (...), one value a member; a scalar without leading axes.

    Gradients:
        Finite also at zero error (there the norm's subgradient 0 is taken).

    Raises:
        ConfigError: an unknown kind, form or reduction, or one that the others have no use for.
        ValueError: a target, mask or weights that don't fit the predictions.
    """
    check_choice("kind", kind, KINDS)
    check_choice("form", form, ("joint", "per_coordinate"))
    if form == "joint" and coordinate_weights is not None:
        raise ConfigError("coordinate_weights: expected None with form='joint'; leave them out")
    if form == "per_coordinate" and kind == "classification":
        raise ConfigError("form: expected joint with classification, got 'per_coordinate'")
    count = particle_predictions.shape[-2]
    outputs = particle_predictions.shape[:-2]
    known = _counted(mask, outputs)
    if kind == "classification":
        _check_shape("target", target, outputs)
        classes = _known(target, known).unsqueeze(-1).expand(particle_predictions.shape[:-1])
        log_p = -_cross_entropy(particle_predictions, classes)
    else:
        _check_shape("target", target, (*outputs, particle_predictions.shape[-1]))
        error = lift(particle_predictions) - _known(target, known).unsqueeze(-2)
        if form == "per_coordinate":
            steps = _per_coordinate(error, coordinate_weights, time_weights)
            return reduce_loss(steps, known, time, batch)
        log_p = -safe_norm(error)
    steps = math.log(count) - torch.logsumexp(log_p, dim=-1)
    if time_weights is not None:
        steps = steps * _over_time(time_weights, steps)
    return reduce_loss(steps, known, time, batch)


def combined_loss(
    prediction: Tensor, elbo: Tensor | None, prediction_weight: float = 1.0, beta: float = 1.0
) -> Tensor:
    """Return prediction_weight * L_pred + beta * L_ELBO (the paper: 1 and 1).

    Args:
        prediction: (...), L_pred of every member.
        elbo: (...), L_ELBO, or None.
        prediction_weight: 0 leaves L_pred out, whatever its value.
        beta: 0 leaves L_ELBO out, whatever its value.

    Returns:
        (...).
    """
    if elbo is None or beta == 0:
        return _times(prediction_weight, prediction)
    if prediction_weight == 0:
        return _times(beta, elbo)
    return _times(prediction_weight, prediction) + _times(beta, elbo)


def _times(factor: float, loss: Tensor) -> Tensor:
    return loss if factor == 1 else factor * loss


def safe_norm(error: Tensor) -> Tensor:
    """Return the Euclidean norm over the last axis, with gradient 0 where the error is 0."""
    squared = error.square().sum(-1)
    zero = squared == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squared).sqrt())


def exponential_time_weights(
    steps: int,
    rate: float = 0.1,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return exp(rate t), t = 0, ..., steps - 1, divided by their sum (the authors' release).

    Args:
        steps: T, at least 1.
        rate: per step; at 0.1 the last 20 of 80 steps carry 86 % of the weight.
        device: of the result.
        dtype: of the result; float32 when None.

    Returns:
        (T,), summing to 1.
    """
    return torch.softmax(rate * torch.arange(steps, device=device, dtype=dtype or torch.float32), 0)


def reduce_loss(
    steps: Tensor, mask: Tensor | Outputs | None, time: Reduction = "sum", batch: Reduction = "mean"
) -> Tensor:
    """Reduce (T, ..., N) over time and sequences, never over leading axes.

    Masked steps are selected away, not multiplied by 0, so that NaN in padding can't spread to the
    loss. (To its gradient it can, through whatever made the NaN: the losses above put masked
    targets aside before their arithmetic.) Sequences without any output don't count in a batch
    mean.

    Args:
        steps: (T, ..., N), a loss of each step.
        mask: (T, ..., N) bool, steps that have an output, or :class:`Outputs`; None means all.
        time: ``sum``, or ``mean`` over a sequence's outputs.
        batch: ``mean`` over sequences that have an output, or ``sum``.

    Returns:
        (...), one value a member.

    Raises:
        ConfigError: an unknown reduction.
        ValueError: a mask of another shape.
    """
    check_choice("time", time, REDUCTIONS)
    check_choice("batch", batch, REDUCTIONS)
    known = _counted(mask, steps.shape)
    if known is not None:
        steps = torch.where(known.mask, steps, 0.0)
    if time == "mean":
        # Before the sum, so that there is only one.
        steps = steps / (len(steps) if known is None else known.each.clamp(min=1))
    total = steps.sum(0).sum(-1)
    if batch == "sum":
        return total
    return total / (steps.shape[-1] if known is None else known.sequences)


def _counted(mask: Tensor | Outputs | None, steps: Sequence[int]) -> Outputs | None:
    known = mask if mask is None or isinstance(mask, Outputs) else count_outputs(mask)
    if known is not None:
        _check_shape("mask", known.mask, steps)
    return known


def _known(target: Tensor, known: Outputs | None) -> Tensor:
    """The target with 0 where it doesn't count: 0 times the gradient of a NaN would be NaN."""
    if known is None:
        return target
    mask = known.mask if target.dim() == known.mask.dim() else known.mask.unsqueeze(-1)
    return torch.where(mask, target, 0)


def _per_coordinate(
    error: Tensor, coordinate_weights: Tensor | None, time_weights: Tensor | None
) -> Tensor:
    if coordinate_weights is not None:
        _check_shape("coordinate_weights", coordinate_weights, error.shape[-1:])
    exponent = -error.square()
    if time_weights is not None:
        exponent = exponent * _over_time(time_weights, exponent)
    terms = math.log(error.shape[-2]) - torch.logsumexp(exponent, dim=-2)
    if coordinate_weights is not None:
        terms = terms * coordinate_weights
    return terms.mean(-1)


def _cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    logs = F.log_softmax(lift(logits), dim=-1)
    return -logs.gather(-1, classes.unsqueeze(-1)).squeeze(-1)


def _over_time(time_weights: Tensor, like: Tensor) -> Tensor:
    _check_shape("time_weights", time_weights, like.shape[:1])
    return time_weights.view(-1, *([1] * (like.dim() - 1)))


def _check_shape(name: str, given: Tensor, expected: Sequence[int]) -> None:
    """Else tensors of other shapes would be broadcast, to a loss of something else."""
    if tuple(given.shape) != tuple(expected):
        raise ValueError(f"{name}: expected {tuple(expected)}, got {tuple(given.shape)}")
