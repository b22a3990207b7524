"""The path with fused kernels: noise is drawn inside them, from keys instead of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pfrnn.kernels.dispatch import Choice
from pfrnn.kernels.noise import NoiseKey, fill_uniform
from pfrnn.study.config import Training
from pfrnn.study.train.batches import Batch
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.loss import LossWeights
from pfrnn.study.train.members import Member
from pfrnn.study.train.networks import NetworkSpec
from pfrnn.study.train.noise import dropout_factors, step_seed
from pfrnn.study.train.path import PlainPath

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
        self.take(choice)
        self._seeds: dict[tuple[object, ...], Tensor] = {}
        self._steps: Tensor | None = None

    @property
    def _fused(self) -> bool:
        return self.loop is not None and self.loop.fused

    def _randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Randomness | None:
        if not self._fused:
            return super()._randomness(members, axes, batch)
        key = self._key(members, axes, batch.x.device)
        uniform = key if self.spec.filter.resampling != "none" else None
        return Randomness(key, uniform, self._initial(members, axes, batch))

    def _initial(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Tensor | None:
        """Draw where the particles start, (2, M, N, K, H), or None: at zero."""
        if self.spec.filter.initial_state != "uniform":
            return None
        *use, step = axes
        key = self._key(members, (*use, "initial", step), batch.x.device)
        sizes = (self.spec.particles, self.spec.hidden)
        uniform = fill_uniform(key, 2, batch.x.shape[2], sizes[0] * sizes[1])
        return uniform.view(*uniform.shape[:-1], *sizes)

    def _dropout(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Tensor:
        """As the plain path's, from the kernels' generator: no step waits for the host."""
        if not self._fused:
            return super()._dropout(members, axes, batch)
        *use, step = axes
        key = self._key(members, (*use, "dropout", step), batch.x.device)
        sizes = (self.spec.particles, self.spec.hidden)
        steps = 1 if self.spec.task == "classification" else len(batch.x)
        uniform = fill_uniform(key, steps, batch.x.shape[2], sizes[0] * sizes[1])
        return dropout_factors(uniform, self.spec.dropout).unflatten(-1, sizes)

    def _key(
        self, members: Sequence[Member], axes: Sequence[str | int], device: torch.device
    ) -> NoiseKey:
        """Key of a step's numbers: the members' seeds for the use, and the step."""
        *use, step = axes if isinstance(axes[-1], int) else (*axes, 0)
        if self._steps is None:
            # Two a row: every step's number starts at a multiple of 16 bytes. Triton compiles a
            # kernel anew for a pointer that doesn't.
            self._steps = torch.arange(_STEPS, device=device).repeat_interleave(2).view(-1, 2)
        place = int(step)
        number = self._steps[place, :1] if place < _STEPS else torch.tensor([place], device=device)
        # The members' seeds belong to the key: a compacted population has other rows.
        name = (tuple(use), tuple(member.seed for member in members))
        if name not in self._seeds:
            if len(self._seeds) > 64:
                self._seeds.clear()
            seeds = [step_seed(member, *use) for member in members]
            self._seeds[name] = torch.tensor(seeds, dtype=torch.int64, device=device)
        return NoiseKey(self._seeds[name], number)
