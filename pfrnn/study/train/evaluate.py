"""Evaluating a population on a split, with noise fixed by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pfrnn.study.train.batches import Batch, DeviceSplit
from pfrnn.study.train.members import Member
from pfrnn.study.train.networks import NetworkOutput
from pfrnn.study.train.population import Weights

if TYPE_CHECKING:
    from pfrnn.study.train.path import PlainPath

# Sequences an evaluation step. Part of how noise is dealt out, so a constant.
EVALUATION_BATCH = 128


class Evaluated(NamedTuple):
    """A pass over a split.

    Attributes:
        prediction: (M, N, T, C), or (M, N, C) logits.
        loss: (M,), mean over sequences.
        ess: (M,), mean effective sample size / K over valid steps; NaN without particles.
        unique: (M,), mean share of distinct ancestors; NaN without particles.
    """

    prediction: npt.NDArray[np.float32]
    loss: npt.NDArray[np.float64]
    ess: npt.NDArray[np.float64]
    unique: npt.NDArray[np.float64]


def evaluate(
    path: PlainPath,
    weights: Weights,
    members: Sequence[Member],
    split: DeviceSplit,
    axes: Sequence[str | int],
) -> Evaluated:
    """Predict every sequence of a split.

    Args:
        path: computes the steps.
        weights: the members' current or best ones.
        members: in the weights' order.
        split: at least one sequence.
        axes: name the noise: the same axes give the same noise, e.g. in every epoch.
    """
    found: list[Scores] = []
    every = np.tile(np.arange(split.sequences), (len(members), 1))
    for number, rows in enumerate(split.batches(every, EVALUATION_BATCH)):
        one = path.score_on(weights, members, split, rows, (*axes, number))
        # Copies, because the next step may write its result into the same memory.
        found.append(Scores(one.prediction.clone(), one.sums.clone()))
    # One copy to the host for the whole pass.
    totals = torch.stack([one.sums for one in found]).sum(0).double().cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return Evaluated(
            torch.cat([one.prediction for one in found], 1).float().cpu().numpy(),
            totals[0] / split.sequences,
            totals[1] / totals[3],
            totals[2] / totals[3],
        )


class Predicted(NamedTuple):
    """Output of one evaluation step and its loss (M,)."""

    output: NetworkOutput
    loss: Tensor


class Scores(NamedTuple):
    """What is kept of an evaluation step, on the device.

    Attributes:
        prediction: (M, N, T, C), padded to the split's length, or (M, N, C) for labels.
        sums: (4, M) float64: loss, ESS / K, share of distinct ancestors, valid steps, each summed
            over the batch.
    """

    prediction: Tensor
    sums: Tensor


def scores(predicted: Predicted, batch: Batch, split: DeviceSplit) -> Scores:
    """Reduce an evaluation step to what is kept of it."""
    prediction = predicted.output.prediction
    if split.y.dim() == 1:
        return Scores(prediction[0], _sums(predicted, batch))
    # (T', M, N, C) -> (M, N, T, C)
    moved = prediction.permute(1, 2, 0, 3)
    missing = split.mask.shape[1] - moved.shape[2]
    if missing:
        moved = torch.nn.functional.pad(moved, (0, 0, 0, missing))
    return Scores(moved, _sums(predicted, batch))


def _sums(predicted: Predicted, batch: Batch) -> Tensor:
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
