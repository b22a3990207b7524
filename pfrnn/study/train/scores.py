"""What an evaluation step keeps of a batch: the predictions and a few sums, on the device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.study.train.batches import Batch, DeviceSplit
from pfrnn.study.train.networks import NetworkOutput


class Predicted(NamedTuple):
    """Output of one evaluation step and its loss (M,)."""

    output: NetworkOutput
    loss: Tensor


class Scores(NamedTuple):
    """An evaluation step.

    Attributes:
        prediction: (M, N, T, C), padded to the split's length, or (M, N, C) for labels.
        sums: (4, M) float64: loss, ESS / K, share of distinct ancestors, valid steps, each summed
            over the batch.
    """

    prediction: Tensor
    sums: Tensor


def scores(predicted: Predicted, batch: Batch, split: DeviceSplit) -> Scores:
    """Reduce an evaluation step to what is kept of it."""
    prediction = members_first(predicted.output.prediction, split)
    return Scores(prediction, summary(predicted, batch))


def members_first(prediction: Tensor, split: DeviceSplit) -> Tensor:
    """(T', M, N, C) -> (M, N, T, C), padded to the split's length; or (M, N, C) for labels."""
    if split.y.dim() == 1:
        return prediction[0]
    moved = prediction.permute(1, 2, 0, 3)
    missing = split.mask.shape[1] - moved.shape[2]
    return torch.nn.functional.pad(moved, (0, 0, 0, missing)) if missing else moved


def summary(predicted: Predicted, batch: Batch) -> Tensor:
    """Sums over a batch: (4, M): loss, ESS / K, share of distinct ancestors, valid steps."""
    output, loss = predicted
    total = loss.double() * batch.x.shape[2]
    if output.ess is None or output.ancestors is None:
        nothing = torch.zeros_like(total)
        return torch.stack([total, nothing, nothing, nothing])
    count = output.ancestors.shape[-1]
    ordered = output.ancestors.sort(-1).values
    unique = 1 + (ordered.diff(dim=-1) != 0).sum(-1)
    valid = torch.ones_like(output.ess) if batch.valid is None else batch.valid.to(output.ess)
    shares = [value * valid / count for value in (output.ess, unique)]
    return torch.stack(
        [total, *(share.sum((0, 2)).double() for share in shares), valid.sum((0, 2))]
    )
