"""The path with fused kernels: noise is drawn inside them, from keys instead of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pfrnn.config import Training
from pfrnn.kernels.dispatch import Choice
from pfrnn.kernels.noise import NoiseKey
from pfrnn.nn.cores import Randomness
from pfrnn.nn.networks import NetworkSpec
from pfrnn.training.batches import Batch
from pfrnn.training.loss import LossWeights
from pfrnn.training.members import Member
from pfrnn.training.noise import step_seed
from pfrnn.training.path import PlainPath

_STEPS = 4096


class FusedPath(PlainPath):
    """As the plain path, the loop over time in fused kernels.

    Numbers derive from the member's seed for a use and epoch, and the step within it; both lie on
    the device before an epoch's first step, so that no step waits for the host.
    """

    def __init__(
        self, spec: NetworkSpec, weights: LossWeights, training: Training, choice: Choice
    ) -> None:
        super().__init__(spec, weights, training)
        self.name, self.reason = choice.name, choice.reason
        self.network.core.run = choice.run
        self._seeds: dict[tuple[object, ...], Tensor] = {}
        self._steps: Tensor | None = None

    def _randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Randomness:
        *use, step = axes if isinstance(axes[-1], int) else (*axes, 0)
        device = batch.x.device
        if self._steps is None:
            self._steps = torch.arange(_STEPS, device=device)
        place = int(step)
        number = (
            self._steps[place : place + 1]
            if place < _STEPS
            else torch.tensor([place], device=device)
        )
        # The members' seeds belong to the key: a compacted population has other rows.
        name = (tuple(use), tuple(member.seed for member in members))
        if name not in self._seeds:
            if len(self._seeds) > 64:
                self._seeds.clear()
            seeds = [step_seed(member, *use) for member in members]
            self._seeds[name] = torch.tensor(seeds, dtype=torch.int64, device=device)
        key = NoiseKey(self._seeds[name], number)
        uniform = key if self.spec.filter.resampling != "none" else None
        return Randomness(key, uniform)
