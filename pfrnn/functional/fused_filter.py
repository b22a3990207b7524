"""Weight update and resampling of a step with the backward written by hand (see fused.py).

The forward calls the public functions of weights.py and resampling.py; what is saved is the
bookkeeping of some thirty small differentiable operations a step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfrnn.functional.first_order import first_order
from pfrnn.functional.resampling import draw, flat_rows
from pfrnn.functional.types import FilterSwitches
from pfrnn.functional.weights import LOG_ZERO, effective_sample_size


def fused_filter(
    hidden: Tensor,
    cell: Tensor | None,
    log_weights: Tensor,
    observed: Tensor,
    observation: Tensor,
    uniforms: Tensor | None,
    switches: FilterSwitches,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor]:
    """Weigh moved particles, resample, gather.

    Args:
        hidden: (..., N, K, H), moved.
        cell: (..., N, K, H), moved, or None.
        log_weights: (..., N, K), before the step.
        observed: (..., N, 1), the input's share of f_obs.
        observation: (..., H), the weight of f_obs on the hidden state.
        uniforms: (..., N, K), or None without resampling.
        switches: static choices; ``ess_threshold`` must be None.

    Returns:
        hidden, cell, log-weights, ancestors, effective sample size.
    """
    out = _Filter.apply(  # type: ignore[no-untyped-call]
        hidden, cell, log_weights, observed, observation, uniforms, switches
    )
    new_hidden, new_cell, new_weights, ancestors, ess = out
    if switches.resampling == "none":
        new_hidden, new_cell = hidden, cell
    return new_hidden, new_cell, new_weights, ancestors, ess


def _rows(hidden: Tensor) -> Tensor:
    return hidden.flatten(-3, -2)


class _Filter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        cell: Tensor | None,
        log_weights: Tensor,
        observed: Tensor,
        observation: Tensor,
        uniforms: Tensor | None,
        switches: FilterSwitches,
    ) -> tuple[Any, ...]:
        log_lik = (_rows(hidden) @ observation.unsqueeze(-1)).view_as(log_weights)
        raw = log_lik.add_(observed).add_(log_weights)
        alive = raw >= LOG_ZERO
        weighed = torch.log_softmax(raw.clamp_(min=LOG_ZERO), dim=-1)
        ess = effective_sample_size(weighed)
        drawn = draw(weighed, uniforms, switches.resampling, switches.alpha)
        ctx.set_materialize_grads(False)
        ctx.alpha = switches.alpha
        shared = (hidden, observation, weighed, alive)
        if switches.resampling == "none":
            ctx.kind = "none"
            ctx.save_for_backward(*shared, None, None, None)
            ctx.mark_non_differentiable(drawn.ancestors, ess)
            return None, None, weighed, drawn.ancestors, ess
        flat = flat_rows(drawn.ancestors)
        new_hidden = _pick(hidden, flat)
        new_cell = None if cell is None else _pick(cell, flat)
        soft = switches.resampling == "soft" and switches.alpha < 1.0
        ctx.kind = "soft" if soft else "constant"
        ctx.save_for_backward(*shared, drawn.ancestors, drawn.log_weights, flat)
        fixed = (drawn.ancestors, ess) if soft else (drawn.ancestors, ess, drawn.log_weights)
        ctx.mark_non_differentiable(*fixed)
        return new_hidden, new_cell, drawn.log_weights, drawn.ancestors, ess

    @staticmethod
    @first_order
    def backward(
        ctx: Any,
        grad_hidden: Tensor | None,
        grad_cell: Tensor | None,
        grad_weights: Tensor | None,
        *_: Any,
    ) -> Any:
        hidden, observation, weighed, alive, ancestors, new_weights, flat = ctx.saved_tensors
        to_hidden = None if grad_hidden is None else _scatter(grad_hidden, flat)
        to_cell = None if grad_cell is None else _scatter(grad_cell, flat)
        if grad_weights is None or ctx.kind == "constant":
            return to_hidden, to_cell, None, None, None, None, None
        weights = weighed.exp()
        if ctx.kind == "soft":
            # Back through renormalising, the gather, and log w - log(alpha w + (1 - alpha) / K).
            grad = grad_weights - new_weights.exp() * grad_weights.sum(-1, keepdim=True)
            grad = torch.zeros_like(grad).scatter_add_(-1, ancestors, grad)
            tempered = weights * ctx.alpha
            share = tempered / (tempered + (1.0 - ctx.alpha) / weights.shape[-1])
            grad = grad - grad * share
        else:
            grad = grad_weights
        grad = grad - weights * grad.sum(-1, keepdim=True)
        grad = torch.where(alive, grad, 0.0)
        wide = grad.unsqueeze(-1)
        through = wide * observation[..., None, None, :]
        to_hidden = through if to_hidden is None else to_hidden.add_(through)
        need = ctx.needs_input_grad
        to_observation = None
        if need[4]:
            to_observation = (_rows(hidden).mT @ _rows(wide)).squeeze(-1)
        to_observed = grad.sum(-1, keepdim=True) if need[3] else None
        return to_hidden, to_cell, grad, to_observed, to_observation, None, None


def _pick(particles: Tensor, flat: Tensor) -> Tensor:
    return particles.flatten(0, -2).index_select(0, flat).view(particles.shape)


def _scatter(grad: Tensor, flat: Tensor) -> Tensor:
    rows = grad.flatten(0, -2)
    return torch.zeros_like(rows).index_add_(0, flat, rows).view(grad.shape)
