"""The states that layers and cells carry: tuples of the functional core."""

from __future__ import annotations

from torch import Tensor

from pfrnn.functional.types import FilterOutput, PFState, RNNOutput, RNNState, StepInfo
from pfrnn.functional.weights import lift, uniform_log_weights

__all__ = ["FilterOutput", "PFState", "RNNOutput", "RNNState", "StepInfo", "broadcast_state"]


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
