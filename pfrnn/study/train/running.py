"""The running batch-norm statistics of a population, moved towards a batch's."""

from __future__ import annotations

import torch
from torch import Tensor

from pfrnn.functional.batch_norm import Known, Statistics, update_running
from pfrnn.study.train.population import Population

# Weight of a new batch in the running batch-norm statistics, once 1/n has fallen below it.
_MOMENTUM = 0.1
_RUNNING = "core.cell.running"


def running_statistics(
    population: Population, own: Statistics | Known | None
) -> list[tuple[Tensor, Tensor]]:
    """Move the running batch-norm statistics of each time step towards the batch's.

    The n-th update weighs 1/n until that falls to 0.1, so that a short training isn't judged on
    statistics that still remember their start.

    Returns:
        Pairs of what the population holds for the batch's time steps, and its new value.
    """
    if own is None:
        return []
    steps = len(own.mean)
    before = [population.buffers[f"{_RUNNING}.{name}"] for name in ("mean", "variance")]
    old = (before[0][..., :steps, :], before[1][..., :steps, :])
    # A number of this type lies on the host: an argument of the addition, which no copy follows.
    one = torch.ones((), dtype=torch.float64)
    momentum = (population.clock + one).reciprocal().clamp(min=_MOMENTUM)
    moved: Statistics | Known = own._replace(
        mean=own.mean.movedim(0, -2), variance=own.variance.movedim(0, -2)
    )
    if isinstance(moved, Statistics):
        moved = moved._replace(count=moved.count.movedim(0, -1))
    new = update_running(
        old,
        moved,
        momentum.to(old[0].dtype),
    )
    return list(zip(old, new, strict=True))
