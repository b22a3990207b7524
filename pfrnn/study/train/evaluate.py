"""Evaluating a population on a split, with noise fixed by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pfrnn.study.train.batches import DeviceSplit
from pfrnn.study.train.contract import ComputePath
from pfrnn.study.train.members import Member
from pfrnn.study.train.population import Population
from pfrnn.study.train.streaming import StreamedSplit

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
    split: DeviceSplit | StreamedSplit,
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
    prediction: Tensor | None = None
    sums: list[Tensor] = []
    every = np.broadcast_to(np.arange(split.sequences), (len(members), split.sequences))
    for number, (held, part) in enumerate(split.batches(every.copy(), EVALUATION_BATCH)):
        start = number * EVALUATION_BATCH
        found = path.score_on(population, members, held, part, (*axes, number), best)
        if prediction is None:
            _, _, *rest = found.prediction.shape
            prediction = found.prediction.new_empty(len(members), split.sequences, *rest)
        # Copies, because the next step may write its result into the same memory.
        prediction[:, start : start + part.host.shape[1]].copy_(found.prediction)
        sums.append(found.sums.clone())
    if prediction is None:
        raise ValueError("expected a split of at least one sequence, got none")
    # One copy to the host for the whole pass.
    totals = torch.stack(sums).sum(0).double().cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return Evaluated(
            prediction.float().cpu().numpy(),
            totals[0] / split.sequences,
            totals[1] / totals[3],
            totals[2] / totals[3],
        )
