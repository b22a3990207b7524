"""A layer's states: what torch's tools must know of them, and how layers share them out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils.data._utils.collate import default_collate_fn_map

from pfrnn.functional.types import PFState, RNNState
from pfrnn.functional.weights import lift, uniform_log_weights


def collate_states(batch: list[PFState], *, collate_fn_map: Any = None) -> PFState:
    """Stack states for a DataLoader, as its default does with tuples; None stays None."""
    parts = zip(*batch, strict=True)
    return PFState(*(None if part[0] is None else torch.stack(part) for part in parts))


# torch.load(..., weights_only=True), torch.export.save and a DataLoader take a state.
torch.serialization.add_safe_globals([PFState])
_pytree._register_namedtuple(PFState, serialized_type_name="pfrnn.PFState")
default_collate_fn_map[PFState] = collate_states


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
    return PFState(*(None if part is None else part[layer] for part in state))


def stack_layers(states: list[PFState]) -> PFState:
    """Return the layers' states as one, (num_layers, ...)."""
    return collate_states(states)
