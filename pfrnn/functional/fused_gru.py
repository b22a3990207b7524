"""The PF-GRU's memory update with its backward written by hand (see fused.py).

Serves the paper's form: noise scale from [h, x], reset before the product.
"""

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
)
from pfrnn.functional.types import FilterSwitches

Given = tuple[Tensor, Tensor]


def fused_gru_update(
    hidden: Tensor,
    x_blocks: Tensor,
    noise: Tensor,
    recurrent: Tensor,
    candidate: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    switches: FilterSwitches,
    given: Given | None,
    valid: Tensor | None,
) -> tuple[Tensor, Statistics | None]:
    """Return the new hidden state of every particle, and the step's statistics.

    Args:
        hidden: (..., N, K, H).
        x_blocks: (..., N, 4H): update, reset, candidate, noise scale.
        noise: (..., N, K, H).
        recurrent: (..., H, 3H): update, reset, noise scale.
        candidate: (..., H, H).
        gain: of the batch norm, or None.
        shift: likewise.
        switches: static choices.
        given: batch-norm statistics, or None for the step's own.
        valid: (..., N) bool, or None.
    """
    out = _Update.apply(  # type: ignore[no-untyped-call]
        hidden, x_blocks, noise, recurrent, candidate, gain, shift, switches, given, valid
    )
    mean, variance, count = out[1:]
    return out[0], None if mean is None else Statistics(mean, variance, count)


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        x_blocks: Tensor,
        noise: Tensor,
        recurrent: Tensor,
        candidate: Tensor,
        gain: Tensor | None,
        shift: Tensor | None,
        switches: FilterSwitches,
        given: Given | None,
        valid: Tensor | None,
    ) -> tuple[Any, ...]:
        size = hidden.shape[-1]
        x_gates, x_raw, x_scale = x_blocks.unsqueeze(-2).split_with_sizes(
            (2 * size, size, size), -1
        )
        product = hidden.flatten(-3, -2) @ recurrent
        blocks = product.view(*hidden.shape[:-1], 3 * size)
        gates, raw_scale = blocks.split_with_sizes((2 * size, size), -1)
        gates.add_(x_gates).sigmoid_()
        raw_scale.add_(x_scale)
        update, reset = gates.split_with_sizes((size, size), -1)
        inner = reset * hidden
        raw = (inner.flatten(-3, -2) @ candidate).view_as(hidden).add_(x_raw)
        noisy = noisy_candidate(raw, raw_scale, noise, switches.noise_scale)
        normed = normed_forward(noisy, gain, shift, given, valid, switches)
        new = torch.addcmul(normed.activated, update, hidden - normed.activated)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            hidden, noise, recurrent, candidate, gain, valid, blocks, inner, *normed[:4]
        )
        ctx.switches, ctx.own, ctx.native = switches, given is None, normed.native
        if normed.statistics is None:
            return new, None, None, None
        ctx.mark_non_differentiable(*normed.statistics)
        return (new, *normed.statistics)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
        if grad is None:
            return (None,) * 10
        hidden, noise, recurrent, candidate, gain, valid, blocks, inner, *kept = ctx.saved_tensors
        normed, switches = Normed(kept[0], kept[1], kept[2], kept[3], ctx.native), ctx.switches
        size = hidden.shape[-1]
        update, reset, raw_scale = blocks.split_with_sizes((size,) * 3, -1)
        grads = torch.empty_like(blocks)
        to_update, to_reset, to_scale = grads.split_with_sizes((size,) * 3, -1)
        torch.mul(grad, hidden - normed.activated, out=to_update)
        to_hidden = grad * update
        back = normed_backward(grad - to_hidden, normed, gain, valid, switches, ctx.own)
        scale_backward(back.raw, raw_scale, noise, switches.noise_scale, to_scale)
        raw_rows = back.raw.flatten(-3, -2)
        to_inner = (raw_rows @ candidate.mT).view_as(hidden)
        torch.mul(to_inner, hidden, out=to_reset)
        to_hidden.addcmul_(to_inner, reset)
        gates = grads[..., : 2 * size]
        torch.ops.aten.sigmoid_backward.grad_input(gates, blocks[..., : 2 * size], grad_input=gates)
        rows = grads.flatten(-3, -2)
        need = ctx.needs_input_grad
        to_x = None
        if need[1]:
            to_gates, to_x_scale = grads.sum(-2).split_with_sizes((2 * size, size), -1)
            to_x = torch.cat([to_gates, back.raw.sum(-2), to_x_scale], -1)
        return (
            to_hidden.add_((rows @ recurrent.mT).view_as(hidden)) if need[0] else None,
            to_x,
            noise_backward(back.raw, raw_scale, switches.noise_scale) if need[2] else None,
            hidden.flatten(-3, -2).mT @ rows if need[3] else None,
            inner.flatten(-3, -2).mT @ raw_rows if need[4] else None,
            back.gain if need[5] else None,
            back.shift if need[6] else None,
            None,
            None,
            None,
        )
