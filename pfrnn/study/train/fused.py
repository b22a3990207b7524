"""The path with fused kernels: noise is drawn inside them, from keys instead of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pfrnn.kernels.noise import NoiseKey, fill_uniform
from pfrnn.study.config import Training
from pfrnn.study.train.batches import Cut
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.loss import LossWeights
from pfrnn.study.train.members import Member
from pfrnn.study.train.noise import step_seed
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.spec import NetworkSpec

_STEPS = 4096


class FusedPath(PlainPath):
    """As the plain path, the loop over time in fused kernels.

    Numbers derive from the member's seed for a use and epoch, and the step within it; both lie on
    the device before an epoch's first step, so that no step waits for the host.
    """

    def __init__(self, spec: NetworkSpec, weights: LossWeights, training: Training) -> None:
        super().__init__(spec, weights, training)
        self._seeds: dict[tuple[object, ...], Tensor] = {}
        self._steps: Tensor | None = None

    def _filter_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], cut: Cut, device: torch.device
    ) -> Randomness:
        key = self._key(members, axes, device)
        uniform = key if self.spec.filter.resampling != "none" else None
        initial = None
        if self.spec.filter.initial_state == "uniform":
            initial = self._uniform(members, axes, "initial", 2, cut, device)
        return Randomness(key, uniform, initial)

    def _dropout_uniform(
        self, members: Sequence[Member], axes: Sequence[str | int], cut: Cut, device: torch.device
    ) -> Tensor:
        steps = 1 if self.spec.task == "classification" else cut.steps
        return self._uniform(members, axes, "dropout", steps, cut, device)

    def _uniform(
        self,
        members: Sequence[Member],
        axes: Sequence[str | int],
        use: str,
        steps: int,
        cut: Cut,
        device: torch.device,
    ) -> Tensor:
        """Uniforms from the kernels' generator, (steps, M, N, K, H)."""
        key = self._key(members, (*axes[:-1], use, axes[-1]), device)
        sizes = self._output_sizes()
        return fill_uniform(key, steps, cut.sequences, sizes[0] * sizes[1]).unflatten(-1, sizes)

    def _key(
        self, members: Sequence[Member], axes: Sequence[str | int], device: torch.device
    ) -> NoiseKey:
        """Key of a step's numbers: the members' seeds for the use, and the step."""
        *use, step = axes if isinstance(axes[-1], int) else (*axes, 0)
        if self._steps is None:
            # Two a row: every step's number starts at a multiple of 16 bytes. Triton compiles a
            # kernel again for a pointer that doesn't.
            self._steps = torch.arange(_STEPS, device=device).repeat_interleave(2).view(-1, 2)
        place = int(step)
        number = self._steps[place, :1] if place < _STEPS else torch.tensor([place], device=device)
        # The members' seeds belong to the key: a smaller population has other rows.
        name = (tuple(use), tuple(member.seed for member in members))
        if name not in self._seeds:
            if len(self._seeds) > 64:
                self._seeds.clear()
            seeds = [step_seed(member, *use) for member in members]
            self._seeds[name] = torch.tensor(seeds, dtype=torch.int64, device=device)
        return NoiseKey(self._seeds[name], number)
