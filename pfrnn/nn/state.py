"""The states that layers and cells carry: tuples of the functional core."""

from __future__ import annotations

import torch
from torch import Tensor

from pfrnn.functional.types import FilterOutput, PFState, RNNOutput, RNNState, StepInfo
from pfrnn.functional.weights import lift, uniform_log_weights

__all__ = [
    "FilterOutput",
    "PFState",
    "RNNOutput",
    "RNNState",
    "StepInfo",
    "broadcast_state",
    "layer_of",
    "squeeze_batch",
    "stack_layers",
]


def broadcast_state(state: RNNState, num_particles: int) -> PFState:
    """Give every particle the state of a plain RNN, with equal weights.

    Args:
        state: hidden (..., N, H) and cell (..., N, H) or None.
        num_particles: K.
    """
    hidden = _spread(state.hidden, num_particles)
    cell = None if state.cell is None else _spread(state.cell, num_particles)
    log_weights = uniform_log_weights(
        *hidden.shape[:-1], device=hidden.device, dtype=lift(hidden[:0]).dtype
    )
    return PFState(hidden, cell, log_weights)


def _spread(x: Tensor, num_particles: int) -> Tensor:
    return x.unsqueeze(-2).expand(*x.shape[:-1], num_particles, x.shape[-1])


def layer_of(state: PFState, layer: int) -> PFState:
    """Return one layer's state of (num_layers, ...)."""
    cell = None if state.cell is None else state.cell[layer]
    return PFState(state.hidden[layer], cell, state.log_weights[layer])


def stack_layers(states: list[PFState]) -> PFState:
    """Return the layers' states as one, (num_layers, ...)."""
    cells = [state.cell for state in states if state.cell is not None]
    return PFState(
        torch.stack([state.hidden for state in states]),
        torch.stack(cells) if cells else None,
        torch.stack([state.log_weights for state in states]),
    )


def squeeze_batch(state: PFState) -> PFState:
    """Drop the batch axis of (num_layers, 1, ...)."""
    cell = None if state.cell is None else state.cell.squeeze(1)
    return PFState(state.hidden.squeeze(1), cell, state.log_weights.squeeze(1))
