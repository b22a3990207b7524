"""Batch normalisation of the candidate: statistics of a step, their pooling, their running mean.

Ioffe and Szegedy 2015, applied in each time step over sequences and particles. Padded sequences
never enter the statistics. One value alone (N K = 1) has variance 0, so that its normalised value
is 0 and the layer's output is the shift: defined, unlike torch's own batch norm, which raises.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.autocast import transforming

# Sums and counts of a batch overflow the one and lose their digits in the other.
_NARROW = (torch.float16, torch.bfloat16)
# Per feature over sequences and particles; per particle slot over sequences and features.
_AXES = {"feature": (-3, -2), "particle_slot": (-3, -1)}


class Statistics(NamedTuple):
    """Mean and biased variance of each channel, and the number of values behind them.

    Attributes:
        mean: (..., C).
        variance: (..., C).
        count: (...).
    """

    mean: Tensor
    variance: Tensor
    count: Tensor  # type: ignore[assignment]  # shadows tuple.count


class Known(NamedTuple):
    """Statistics of equally many values each, a number that the host knows (nothing is padded)."""

    mean: Tensor
    variance: Tensor
    number: float


def batch_statistics(
    x: Tensor, mode: str, valid: Tensor | None = None
) -> tuple[Statistics, Tensor]:
    """Compute the statistics of one step.

    Two passes of plain sums: on a CPU ten times faster than ``torch.var_mean`` over leading axes,
    and the centred values serve the normalisation too.

    Args:
        x: (..., N, K, H), the candidate before the activation.
        mode: ``feature``: C = H, over N and K; ``particle_slot``: C = K, over N and H.
        valid: (..., N) bool, or None when every sequence is valid.

    Returns:
        Statistics with gradients (all zero where no sequence is valid), and x minus its mean.
    """
    axes = _AXES[mode]
    per_sequence = x.shape[-2] if mode == "feature" else x.shape[-1]
    if valid is None:
        size = x.shape[-3] * per_sequence
        mean = x.sum(axes) / max(size, 1)
        centred = x - spread(mean, mode)
        variance = centred.square().sum(axes) / max(size, 1)
        return Statistics(mean, variance, x.new_full(x.shape[:-3], float(size))), centred
    mask = valid[..., None, None]
    count = valid.sum(-1).to(x.dtype) * per_sequence
    scale = count.clamp(min=1.0).unsqueeze(-1)
    mean = torch.where(mask, x, 0.0).sum(axes) / scale
    centred = torch.where(mask, x - spread(mean, mode), 0.0)
    return Statistics(mean, centred.square().sum(axes) / scale, count), centred


def spread(channels: Tensor, mode: str) -> Tensor:
    """Reshape (..., C) so that it broadcasts against (..., N, K, H)."""
    if mode == "feature":
        return channels[..., None, None, :]
    return channels[..., None, :, None]


def apply_batch_norm(
    x: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    mode: str,
    eps: float,
    statistics: tuple[Tensor, Tensor] | None = None,
    valid: Tensor | None = None,
) -> tuple[Tensor, Statistics | None]:
    """Normalise: gain (x - mean) / sqrt(variance + eps) + shift.

    Args:
        x: (..., N, K, H).
        gain: (..., C) or None (1).
        shift: (..., C) or None (0).
        mode: ``feature``, ``particle_slot`` or ``none``.
        eps: added to the variance, above 0.
        statistics: mean and variance (..., C) (evaluation); None takes the batch's own.
        valid: (..., N) bool; padded sequences do not enter the batch's own statistics.

    Returns:
        The normalised x and, in training, the detached statistics of the step. Half-precision
        x is normalised in float32, and its statistics stay that.
    """
    if mode == "none":
        return x, None
    if x.dtype in _NARROW:
        gain, shift = (None if one is None else one.float() for one in (gain, shift))
        y, found = apply_batch_norm(x.float(), gain, shift, mode, eps, statistics, valid)
        return y.to(x.dtype), found
    if statistics is not None:
        # Centring first: x * scale - mean * scale would cancel when |mean| >> deviation.
        centred = x - spread(statistics[0], mode)
        return _scale_shift(centred, statistics[1], gain, shift, mode, eps), None
    if mode == "feature" and x.dim() == 3 and valid is None and not transforming():
        rows = x.flatten(0, 1)
        if gain is not None and shift is not None and rows.shape[0] > 1:
            return _native(x, rows, gain, shift, eps)
    own, centred = batch_statistics(x, mode, valid)
    y = _scale_shift(centred, own.variance, gain, shift, mode, eps)
    return y, Statistics(own.mean.detach(), own.variance.detach(), own.count)


def _native(
    x: Tensor, rows: Tensor, gain: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Statistics]:
    """Let torch's own kernel normalise the rows of one model: a third of the passes over memory."""
    y, mean, inverse = torch.native_batch_norm(rows, gain, shift, None, None, True, 0.0, eps)
    variance = inverse.detach().pow(-2.0).sub_(eps).clamp_(min=0.0)
    count = x.new_full((), float(rows.shape[0]))
    return y.view_as(x), Statistics(mean.detach(), variance, count)


def _scale_shift(
    centred: Tensor,
    variance: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    mode: str,
    eps: float,
) -> Tensor:
    """Return gain * centred / sqrt(variance + eps) + shift."""
    scale = (variance + eps).rsqrt()
    if gain is not None:
        scale = scale * gain
    if shift is None:
        return centred * spread(scale, mode)
    return torch.addcmul(spread(shift, mode), centred, spread(scale, mode))


def pool(mean: Tensor, variance: Tensor, count: Tensor) -> Statistics:
    """Pool the steps' statistics over time (the law of total variance).

    Args:
        mean: (T, ..., C).
        variance: (T, ..., C), biased.
        count: (T, ...); a step without valid sequences has 0 and doesn't count.

    Returns:
        The mean and biased variance of all values of all steps taken together.
    """
    total = count.sum(0)
    share = (count / total.clamp(min=1.0)).unsqueeze(-1)
    pooled = (share * mean).sum(0)
    spread = (share * (variance + (mean - pooled).square())).sum(0)
    return Statistics(pooled, spread, total)


def update_running(
    running: tuple[Tensor, Tensor],
    batch: Statistics | Known,
    momentum: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """Move the running mean and variance towards a batch's, once a batch.

    The variance is made unbiased, n / (n - 1), as torch.nn.BatchNorm1d does; a single value
    (n = 1) moves the mean only, since it says nothing about the variance; n = 0 moves nothing.

    Args:
        running: mean and variance, (..., C).
        batch: pooled statistics of the batch.
        momentum: weight of the new batch, in (0, 1]; a tensor () where the host doesn't know it.
    """
    mean, variance = running
    if isinstance(batch, Known):
        # The same bits in fewer operations.
        number = batch.number
        if number > 0:
            mean = torch.lerp(mean, batch.mean, momentum)
        if number > 1:
            # Divided in the statistics' type; a tensor on the host is an argument of the product.
            known = torch.full((), number, dtype=batch.variance.dtype)
            variance = torch.lerp(variance, batch.variance * (known / (known - 1.0)), momentum)
        return mean, variance
    count = batch.count.unsqueeze(-1)
    unbiased = batch.variance * (count / (count - 1.0).clamp(min=1.0))
    moved = torch.lerp(mean, batch.mean, momentum), torch.lerp(variance, unbiased, momentum)
    return torch.where(count > 0, moved[0], mean), torch.where(count > 1, moved[1], variance)
