"""The shapes of what a filter is given, checked before the first step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from pfrnn.functional.arguments import check_mask
from pfrnn.functional.types import PFState, RNNState


def check_inputs(
    projected: Tensor, state: PFState, noise: Any, uniforms: Any, valid: Tensor | None
) -> None:
    """Refuse tensors that don't fit each other, by name.

    Without this a tensor with an axis too few or too many would be broadcast, or fail steps later
    in an operation that names none of them.

    Args:
        projected: (T, ..., N, P); its leading axes and the state's last two give all others.
        state: hidden and cell (..., N, K, H), log weights (..., N, K).
        noise: (T, ..., N, K, H); what is no tensor isn't looked at.
        uniforms: (T, ..., N, K), likewise.
        valid: (T, ..., N), likewise.

    Raises:
        TypeError: a mask that isn't of bool.
        ValueError: a shape, with the one expected.
    """
    if isinstance(valid, Tensor):
        check_mask("valid", valid, "(T, ..., N)")
    if projected.dim() < 3:
        raise ValueError(f"projected: expected shape (T, ..., N, P), got {_text(projected.shape)}")
    if state.hidden.dim() < 2:
        raise ValueError(
            f"state.hidden: expected shape (..., N, K, H), got {_text(state.hidden.shape)}"
        )
    lead = projected.shape[:-1]
    particles, units = state.hidden.shape[-2:]
    expected = (
        ("state.hidden", state.hidden, (*lead[1:], particles, units), "(..., N, K, H)"),
        ("state.cell", state.cell, (*lead[1:], particles, units), "(..., N, K, H)"),
        ("state.log_weights", state.log_weights, (*lead[1:], particles), "(..., N, K)"),
        ("noise", noise, (*lead, particles, units), "(T, ..., N, K, H)"),
        ("uniforms", uniforms, (*lead, particles), "(T, ..., N, K)"),
        ("valid", valid, tuple(lead), "(T, ..., N)"),
    )
    _refuse_others(
        expected, projected, f" and a state of {particles} particles and {units} units ask for"
    )


def check_rnn_inputs(projected: Tensor, state: RNNState, valid: Tensor | None) -> None:
    """Refuse tensors of a plain RNN that don't fit each other, as :func:`check_inputs` does.

    Raises:
        TypeError: a mask that isn't of bool.
        ValueError: a shape, with the one expected.
    """
    if isinstance(valid, Tensor):
        check_mask("valid", valid, "(T, ..., N)")
    if projected.dim() < 2 or state.hidden.dim() < 1:
        raise ValueError(
            f"projected and state.hidden: expected shapes (T, ..., N, P) and (..., N, H), got "
            f"{_text(projected.shape)} and {_text(state.hidden.shape)}"
        )
    lead = projected.shape[:-1]
    own = (*lead[1:], state.hidden.shape[-1])
    expected = (
        ("state.hidden", state.hidden, own, "(..., N, H)"),
        ("state.cell", state.cell, own, "(..., N, H)"),
        ("valid", valid, tuple(lead), "(T, ..., N)"),
    )
    _refuse_others(expected, projected, " asks for")


def _refuse_others(
    expected: Iterable[tuple[str, Any, tuple[int, ...], str]], projected: Tensor, asks: str
) -> None:
    """Refuse the first of (name, tensor, shape, axes) that has another shape."""
    for name, tensor, shape, axes in expected:
        if isinstance(tensor, Tensor) and tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name}: expected shape {axes} = {_text(shape)}, which projected (T, ..., N, P) = "
                f"{_text(projected.shape)}{asks}, got {_text(tensor.shape)}"
            )


def _text(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"
