"""The fused filter as one differentiable function of a population, (T, M, N, ...)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfrnn.functional.first_order import first_order
from pfrnn.kernels.plan import Plan, inner_contiguous
from pfrnn.kernels.run_backward import run_backward
from pfrnn.kernels.run_forward import Inputs, Saved, Shape, run_forward


class FusedFilter(torch.autograd.Function):
    """Outputs: hidden, log_weights, final cell, y; ancestors, ess, step means and variances."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, carried: bool, inputs: Inputs, projected: Tensor, hidden: Tensor,
        cell: Tensor | None, log_weights: Tensor, recurrent: Tensor, candidate: Tensor | None,
        observation: Tensor, gain: Tensor, shift: Tensor, readout: Tensor | None,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        """Run the filter over (T, M, N, ...); the final cell only where it is ``carried`` on."""
        projected = inner_contiguous(projected)
        particles, units = hidden.shape[-2:]
        shape = Shape(*projected.shape[:3], particles, units)
        fixed = (observation.contiguous(), gain.contiguous(), shift.contiguous())
        read = None if readout is None else readout.contiguous()
        start = (hidden, cell, log_weights)
        saved, y = run_forward(
            plan, inputs, shape, start, projected, recurrent, candidate, *fixed, read
        )
        ctx.save_for_backward(*inputs, *saved, projected, *fixed, read)
        ctx.plan, ctx.shape = plan, shape
        ctx.set_materialize_grads(False)
        last = None
        if carried and cell is not None:
            index = saved.ancestors[:, -1].long().unsqueeze(-1).expand_as(hidden)
            last = saved.cell[:, -1].gather(2, index)
        ancestors, ess = saved.ancestors[:, 1:].transpose(0, 1), saved.ess.transpose(0, 1)
        mean, variance = saved.mean.transpose(0, 1), saved.variance.transpose(0, 1)
        ctx.mark_non_differentiable(ancestors, ess, mean, variance)
        return (
            saved.hidden[:, 1:].transpose(0, 1), saved.log_weights[:, 1:].transpose(0, 1), last,
            None if y is None else y.transpose(0, 1), ancestors, ess, mean, variance,
        )  # fmt: skip

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Run the steps backwards."""
        tensors = ctx.saved_tensors
        inputs = Inputs(*tensors[: len(Inputs._fields)])
        saved = Saved(*tensors[len(inputs) : len(inputs) + len(Saved._fields)])
        projected, *fixed = tensors[len(inputs) + len(saved) :]
        hidden, log_weights, read = (
            None if g is None else inner_contiguous(g) for g in (*grads[:2], grads[3])
        )
        out = run_backward(
            ctx.plan, inputs, ctx.shape, saved, projected, *fixed,
            hidden, log_weights, grads[2], read,
        )  # fmt: skip
        return (
            None, None, None, out.projected, out.hidden, None if ctx.plan.gru else out.cell,
            out.log_weights, out.recurrent, out.candidate, out.observation, out.gain, out.shift,
            out.readout,
        )  # fmt: skip
