"""Running batch-norm statistics as buffers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from pfrnn.errors import ConfigError
from pfrnn.functional.batch_norm import Statistics, update_running
from pfrnn.functional.types import FilterOutput, RNNOutput


class RunningStatistics(_BatchNorm):
    """Running mean and variance of the candidate, for evaluation.

    ``pooled`` keeps one set and updates it once a batch, from the statistics pooled over time and
    valid steps. Applying the momentum at every step instead would leave, after 100 steps, a memory
    of the last 20 or so. ``per_time`` keeps a set for each step up to ``max_steps`` (Cooijmans et
    al. 2017); later steps share the last set.

    One of torch's batch norms, so that ``torch.optim.swa_utils.update_bn`` finds it.

    Args:
        channels: C.
        max_steps: the number of sets; None keeps one for all steps.
        momentum: weight of a new batch, in (0, 1]; None weighs all batches since the last reset
            alike.
        device: of the buffers.
        dtype: of the buffers.
    """

    mean: Tensor
    variance: Tensor

    def __init__(
        self,
        channels: int,
        max_steps: int | None = None,
        momentum: float | None = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(channels, momentum=momentum, affine=False, track_running_stats=False)
        self.max_steps = max_steps
        self.batches = 0
        shape = (channels,) if max_steps is None else (max_steps, channels)
        self.register_buffer("mean", torch.zeros(shape, device=device, dtype=dtype))
        self.register_buffer("variance", torch.ones(shape, device=device, dtype=dtype))

    def reset_running_stats(self) -> None:
        """Start again: mean 0, variance 1."""
        if "mean" in self._buffers:  # torch's constructor calls this first
            self.mean.zero_()
            self.variance.fill_(1)
            self.batches = 0

    def given(self, steps: int) -> tuple[Tensor, Tensor]:
        """Return mean and variance, (..., C), or (T, ..., C) with one set a step."""
        if self.max_steps is None:
            return self.mean, self.variance
        index = torch.arange(steps, device=self.mean.device).clamp(max=self.max_steps - 1)
        pair = (self.mean, self.variance)
        mean, variance = (x.index_select(-2, index).movedim(-2, 0) for x in pair)
        return mean, variance

    @torch.no_grad()
    def update(self, output: FilterOutput | RNNOutput) -> None:
        """Move the buffers towards a batch's statistics, in place, once.

        Channels whose statistics aren't finite (NaN in the input) keep what they had.

        Args:
            output: of a run in training mode.

        Raises:
            ConfigError: the run used given statistics, so that there is nothing to learn from, or
                left them out (``extras=False``).
        """
        if output.mean is None or output.variance is None or output.count is None:
            raise ConfigError(
                "expected the output of a run with batch statistics (in training, and with extras)"
            )
        batch = Statistics(output.mean, output.variance, output.count)
        if self.max_steps is not None:
            batch = self._per_step(output)
        if self.momentum is None:
            self.batches += 1
        momentum = 1.0 / self.batches if self.momentum is None else self.momentum
        # A count passes float16's largest number: computed in float32 at least.
        dtype = torch.promote_types(self.mean.dtype, torch.float32)
        batch = Statistics(*(part.to(dtype) for part in batch))
        running = self.mean.to(dtype), self.variance.to(dtype)
        moved = update_running(running, batch, momentum)
        finite = moved[0].isfinite() & moved[1].isfinite()
        self.mean.copy_(torch.where(finite, moved[0], running[0]))
        self.variance.copy_(torch.where(finite, moved[1], running[1]))

    def _per_step(self, output: FilterOutput | RNNOutput) -> Statistics:
        """Arrange the steps' statistics as the buffers are: (..., max_steps, C)."""
        mean, variance, count = output.step_mean, output.step_variance, output.step_count
        if mean is None or variance is None or not isinstance(count, Tensor):
            raise ConfigError("per_time statistics need the statistics of each step")
        rows = self.mean.shape[-2]
        used = min(rows, mean.shape[0])
        # In their own type, not the buffers': float16 holds no count above 65,504.
        wide = mean.new_zeros((rows, *mean.shape[1:]))
        sizes = count.new_zeros((rows, *count.shape[1:]))
        means, variances = wide, wide.clone()
        means[:used], variances[:used], sizes[:used] = mean[:used], variance[:used], count[:used]
        return Statistics(means.movedim(0, -2), variances.movedim(0, -2), sizes.movedim(0, -1))

    def extra_repr(self) -> str:
        """Return the momentum and, with one set a step, their number."""
        return f"momentum={self.momentum}" + (
            "" if self.max_steps is None else f", max_steps={self.max_steps}"
        )
