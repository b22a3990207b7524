"""The PF-LSTM's memory update with its backward written by hand (see fused.py)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfrnn.functional.batch_norm import Statistics
from pfrnn.functional.first_order import first_order
from pfrnn.functional.fused import (
    Normed,
    noise_backward,
    noisy_candidate,
    normed_backward,
    normed_forward,
    scale_backward,
    tanh_of,
)
from pfrnn.functional.types import FilterSwitches

Given = tuple[Tensor, Tensor]


def fused_lstm_update(
    hidden: Tensor,
    cell: Tensor,
    x_blocks: Tensor,
    noise: Tensor,
    recurrent: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    switches: FilterSwitches,
    given: Given | None,
    valid: Tensor | None,
) -> tuple[Tensor, Tensor, Statistics | None]:
    """Return the new hidden and cell state of every particle, and the step's statistics.

    Args:
        hidden: (..., N, K, H).
        cell: (..., N, K, H).
        x_blocks: (..., N, 5H), the input's share of the five blocks.
        noise: (..., N, K, H).
        recurrent: (..., H, 5H).
        gain: of the batch norm, or None.
        shift: likewise.
        switches: static choices.
        given: batch-norm statistics, or None for the step's own.
        valid: (..., N) bool, or None.
    """
    out = _Update.apply(  # type: ignore[no-untyped-call]
        hidden, cell, x_blocks, noise, recurrent, gain, shift, switches, given, valid
    )
    mean, variance, count = out[2:]
    return out[0], out[1], None if mean is None else Statistics(mean, variance, count)


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        cell: Tensor,
        x_blocks: Tensor,
        noise: Tensor,
        recurrent: Tensor,
        gain: Tensor | None,
        shift: Tensor | None,
        switches: FilterSwitches,
        given: Given | None,
        valid: Tensor | None,
    ) -> tuple[Any, ...]:
        size = hidden.shape[-1]
        product = hidden.flatten(-3, -2) @ recurrent
        blocks = product.view(*hidden.shape[:-1], 5 * size)
        blocks.add_(x_blocks.unsqueeze(-2))
        gates = blocks[..., : 3 * size].sigmoid_()
        gate_in, forget, out = gates.split_with_sizes((size, size, size), -1)
        raw, raw_scale = blocks[..., 3 * size :].split_with_sizes((size, size), -1)
        noisy = noisy_candidate(raw, raw_scale, noise, switches.noise_scale)
        normed = normed_forward(noisy, gain, shift, given, valid, switches)
        new_cell = (forget * cell).addcmul_(gate_in, normed.activated)
        squashed = tanh_of(new_cell)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            hidden, cell, noise, recurrent, gain, valid, blocks, squashed, *normed[:4]
        )
        ctx.switches, ctx.own, ctx.native = switches, given is None, normed.native
        if normed.statistics is None:
            return out * squashed, new_cell, None, None, None
        ctx.mark_non_differentiable(*normed.statistics)
        return (out * squashed, new_cell, *normed.statistics)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_hidden: Tensor | None, grad_cell: Tensor | None, *_: Any) -> Any:
        hidden, cell, noise, recurrent, gain, valid, blocks, squashed, *kept = ctx.saved_tensors
        normed, switches = Normed(kept[0], kept[1], kept[2], kept[3], ctx.native), ctx.switches
        size = hidden.shape[-1]
        parts = (size,) * 5
        gate_in, forget, out, _, raw_scale = blocks.split_with_sizes(parts, -1)
        grads = torch.empty_like(blocks)
        to_in, to_forget, to_out, to_raw, to_scale = grads.split_with_sizes(parts, -1)
        if grad_hidden is None:
            total = torch.zeros_like(cell) if grad_cell is None else grad_cell
            to_out.zero_()
        else:
            torch.mul(grad_hidden, squashed, out=to_out)
            total = torch.ops.aten.tanh_backward(grad_hidden * out, squashed)
            total = total if grad_cell is None else total.add_(grad_cell)
        torch.mul(total, normed.activated, out=to_in)
        torch.mul(total, cell, out=to_forget)
        gates = grads[..., : 3 * size]
        torch.ops.aten.sigmoid_backward.grad_input(gates, blocks[..., : 3 * size], grad_input=gates)
        back = normed_backward(total * gate_in, normed, gain, valid, switches, ctx.own)
        to_raw.copy_(back.raw)
        scale_backward(back.raw, raw_scale, noise, switches.noise_scale, to_scale)
        rows = grads.flatten(-3, -2)
        need = ctx.needs_input_grad
        return (
            (rows @ recurrent.mT).view_as(hidden) if need[0] else None,
            total * forget if need[1] else None,
            grads.sum(-2) if need[2] else None,
            noise_backward(back.raw, raw_scale, switches.noise_scale) if need[3] else None,
            hidden.flatten(-3, -2).mT @ rows if need[4] else None,
            back.gain if need[5] else None,
            back.shift if need[6] else None,
            None,
            None,
            None,
        )
