"""The shapes of what a filter is given, checked before the first step."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pfrnn.functional.types import PFState


def check_inputs(
    projected: Tensor, state: PFState, noise: Any, uniforms: Any, valid: Tensor | None
) -> None:
    """Raise unless the tensors fit each other; otherwise they would be broadcast in silence.

    Args:
        projected: (T, ..., N, P); its leading axes and the state's last two give all others.
        state: hidden and cell (..., N, K, H), log weights (..., N, K).
        noise: (T, ..., N, K, H); anything but a tensor isn't looked at.
        uniforms: (T, ..., N, K), likewise.
        valid: (T, ..., N), likewise.

    Raises:
        ValueError: a shape, with the one expected.
    """
    if projected.dim() < 3:
        raise ValueError(f"projected: expected shape (T, ..., N, P), got {tuple(projected.shape)}")
    lead, (particles, units) = tuple(projected.shape[:-1]), state.hidden.shape[-2:]
    for name, tensor, shape, axes in (
        ("state.hidden", state.hidden, (*lead[1:], particles, units), "(..., N, K, H)"),
        ("state.cell", state.cell, (*lead[1:], particles, units), "(..., N, K, H)"),
        ("state.log_weights", state.log_weights, (*lead[1:], particles), "(..., N, K)"),
        ("noise", noise, (*lead, particles, units), "(T, ..., N, K, H)"),
        ("uniforms", uniforms, (*lead, particles), "(T, ..., N, K)"),
        ("valid", valid, lead, "(T, ..., N)"),
    ):
        if isinstance(tensor, Tensor) and tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name}: expected shape {axes} = {shape}, which projected (T, ..., N, P) = "
                f"{tuple(projected.shape)} and a state of {particles} particles and {units} units "
                f"ask for, got {tuple(tensor.shape)}"
            )
