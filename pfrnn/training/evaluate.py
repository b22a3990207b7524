"""Evaluating a population on a split, with noise fixed by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pfrnn.training.batches import Batch, DeviceSplit, gather, rows_on
from pfrnn.training.members import Member
from pfrnn.training.path import ComputePath, Predicted
from pfrnn.training.population import Population

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
    path: ComputePath,
    population: Population,
    members: Sequence[Member],
    split: DeviceSplit,
    axes: Sequence[str | int],
    best: bool = False,
) -> Evaluated:
    """Predict every sequence of a split.

    Args:
        path: computes the steps.
        population: its current or best state is used.
        members: the live members, in the population's order.
        split: the sequences.
        axes: name the noise: the same axes give the same noise, e.g. in every epoch.
        best: use each member's best state.
    """
    chunks: list[Tensor] = []
    sums: list[Tensor] = []
    every = np.broadcast_to(np.arange(split.sequences), (len(members), split.sequences))
    rows = rows_on(every.copy(), split.x.device)
    for number, start in enumerate(range(0, split.sequences, EVALUATION_BATCH)):
        batch = gather(split, rows.part(start, start + EVALUATION_BATCH))
        predicted = path.predict(population, members, batch, (*axes, number), best)
        chunks.append(_members_first(predicted.output.prediction, split))
        sums.append(_summary(predicted, batch))
    prediction = torch.cat(chunks, 1).float().cpu().numpy()
    # One copy to the host for the whole pass.
    totals = torch.stack(sums).sum(0).double().cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return Evaluated(
            prediction,
            totals[0] / split.sequences,
            totals[1] / totals[3],
            totals[2] / totals[3],
        )


def _members_first(prediction: Tensor, split: DeviceSplit) -> Tensor:
    """(T', M, N, C) -> (M, N, T, C), padded to the split's length; or (M, N, C) for labels."""
    if split.y.dim() == 1:
        return prediction[0]
    moved = prediction.permute(1, 2, 0, 3)
    missing = split.mask.shape[1] - moved.shape[2]
    return torch.nn.functional.pad(moved, (0, 0, 0, missing)) if missing else moved


def _summary(predicted: Predicted, batch: Batch) -> Tensor:
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
