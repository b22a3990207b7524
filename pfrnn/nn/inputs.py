"""What a constructor and a call are given, checked in torch.nn.LSTM's words and put in one form."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from pfrnn.errors import ConfigError
from pfrnn.functional.autocast import autocasting
from pfrnn.functional.types import PFState, RNNState
from pfrnn.nn.state import broadcast_state


def check_sizes(
    input_size: Any,
    hidden_size: Any,
    num_layers: Any = 1,
    bias: Any = True,
    batch_first: Any = False,
    dropout: Any = 0.0,
) -> None:
    """Raise for constructor arguments as torch.nn.LSTM does: same errors, same wording."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            "element being zeroed"
        )
    for name, flag in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
    sizes = (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers))
    for name, size in sizes:
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
    for name, size in sizes:
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            stacklevel=3,
        )


def check_particles(count: Any) -> None:
    """Raise unless a number of particles is an int of at least 1."""
    if isinstance(count, float | str | None) or isinstance(count, bool):
        raise TypeError(f"num_particles should be of type int, got: {type(count).__name__}")
    if count < 1:
        raise ConfigError(f"num_particles: expected at least 1, got {count}")


def check_input(x: Tensor, input_size: int, like: Tensor) -> None:
    """Raise unless x has the weights' type and number of features.

    Raises:
        ValueError: another dtype; autocast converts half precision and float32 by itself.
        RuntimeError: another number of features.
    """
    narrow = (torch.float16, torch.bfloat16, torch.float32)
    converts = x.dtype in narrow and like.dtype in narrow and autocasting(x.device)
    if x.dtype != like.dtype and not converts:
        raise ValueError(
            f"RNN input dtype ({x.dtype}) does not match weight dtype ({like.dtype}). "
            f"Convert input: input.to({like.dtype}), or convert model: model.to({x.dtype})"
        )
    if x.shape[-1] != input_size:
        raise RuntimeError(
            f"input.size(-1) must be equal to input_size. Expected {input_size}, got {x.shape[-1]}"
        )


class Sequences(NamedTuple):
    """A layer's input in one form: time first, batched, padded.

    Attributes:
        data: (T, N, D).
        valid: (T, N) bool, or None when nothing is padded.
        packed: the packed input that this came from, or None.
        batched: whether the input had a batch axis.
    """

    data: Tensor
    valid: Tensor | None
    packed: PackedSequence | None
    batched: bool


def arrange(
    x: Tensor | PackedSequence, name: str, input_size: int, batch_first: bool, like: Tensor
) -> Sequences:
    """Bring a layer's input into one form, and check it.

    Args:
        x: (T, N, D), (N, T, D) with ``batch_first``, (T, D) for one sequence, or packed.
        name: of the layer, for messages.
        input_size: D.
        batch_first: where the batch axis stands.
        like: a parameter, whose dtype the input must have.

    Raises:
        TypeError: x is neither a tensor nor packed.
        ValueError: x has another number of axes, or another dtype than the weights.
        RuntimeError: another number of features, or no time step.
    """
    if isinstance(x, PackedSequence):
        check_input(x.data, input_size, like)
        data, lengths = pad_packed_sequence(x)
        steps = torch.arange(data.shape[0], device=data.device).unsqueeze(-1)
        return Sequences(data, steps < lengths.to(data.device), x, True)
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name}: Expected input to be a Tensor or a PackedSequence, got: {type(x).__name__}"
        )
    if x.dim() not in (2, 3):
        raise ValueError(f"{name}: Expected input to be 2D or 3D, got {x.dim()}D instead")
    check_input(x, input_size, like)
    batched = x.dim() == 3
    if not batched:
        x = x.unsqueeze(1)
    elif batch_first:
        x = x.transpose(0, 1)
    if x.shape[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    return Sequences(x, None, None, batched)


def arrange_state(
    hx: Any, batched: bool, expected: tuple[int, int, int], num_particles: int, has_cell: bool
) -> PFState:
    """Bring a given state into the batched form (layers, N, K, H), and check it.

    Args:
        hx: a :class:`PFState` or a plain tuple of its three parts, or what torch.nn.LSTM
            (h_0, c_0) or torch.nn.GRU (h_0) takes, which is given to every particle.
        batched: whether the input was batched; the state must agree.
        expected: (num_layers, N, H).
        num_particles: K for a state without particles.
        has_cell: whether the state needs a cell.

    Raises:
        TypeError: hx is neither kind of state.
        RuntimeError: a shape differs (torch.nn.LSTM's wording).
    """
    hidden, cell, weights = _parts(hx, has_cell)
    if has_cell != (cell is not None):
        raise RuntimeError(
            f"Expected a state {'with' if has_cell else 'without'} a cell tensor; "
            f"take the state that this kind of layer returned"
        )
    wanted = (3 if batched else 2) + (0 if weights is None else 1)
    if hidden.dim() != wanted or (cell is not None and cell.dim() != wanted):
        raise RuntimeError(_axes_message(batched, wanted, hidden, cell))
    if not batched:
        hidden, cell, weights = (
            None if part is None else part.unsqueeze(1) for part in (hidden, cell, weights)
        )
    layers, sequences, size = expected
    shape = expected if weights is None else (layers, sequences, hidden.shape[2], size)
    for place, part in enumerate((hidden, cell)):
        if part is not None and part.shape != shape:
            which = f"hidden[{place}]" if has_cell else "hidden"
            raise RuntimeError(f"Expected {which} size {shape}, got {list(part.shape)}")
    if weights is None:
        return broadcast_state(RNNState(hidden, cell), num_particles)
    if weights.shape != shape[:-1]:
        raise RuntimeError(f"Expected log_weights size {shape[:-1]}, got {list(weights.shape)}")
    return PFState(hidden, cell, weights)


def _parts(hx: Any, has_cell: bool) -> tuple[Any, Any, Any]:
    """Split a state into hidden, cell and log-weights; None where it has none."""
    if isinstance(hx, tuple | list):
        kinds = [isinstance(part, Tensor) for part in hx]
        if len(hx) == 3 and kinds[0] and kinds[2] and (kinds[1] or hx[1] is None):
            return tuple(hx)  # type: ignore[return-value]
        if has_cell and kinds == [True, True]:
            return hx[0], hx[1], None
    elif isinstance(hx, Tensor) and not has_cell:
        return hx, None, None
    wanted = "a tuple of tensors (h_0, c_0), as torch.nn.LSTM takes"
    if not has_cell:
        wanted = "a tensor h_0, as torch.nn.GRU takes"
    raise TypeError(
        f"hx should be {wanted}, or a PFState that a layer returned, got: {type(hx).__name__}"
    )


def _axes_message(batched: bool, wanted: int, hidden: Tensor, cell: Tensor | None) -> str:
    which = "batched 3-D" if batched else "unbatched 2-D"
    if cell is None:
        return f"For {which} input, hx should also be {wanted}-D but got {hidden.dim()}-D tensor"
    return (
        f"For {which} input, hx and cx should also be {wanted}-D but got "
        f"({hidden.dim()}-D, {cell.dim()}-D) tensors"
    )


def check_numbers(name: str, given: Tensor | None, axes: str, shape: tuple[int, ...]) -> None:
    """Raise unless given random numbers have a layer's shape.

    Raises:
        ValueError: another shape.
    """
    if given is not None and tuple(given.shape) != shape:
        raise ValueError(f"{name}: expected {axes} = {shape}, got {tuple(given.shape)}")


def restore(output: Tensor, given: Sequences, batch_first: bool) -> Tensor | PackedSequence:
    """Bring an output (T, N, H) into the form that the input had."""
    packed = given.packed
    if packed is not None and given.valid is not None:
        valid, data = given.valid, output
        if packed.sorted_indices is not None:
            data = data.index_select(1, packed.sorted_indices)
            valid = valid.index_select(1, packed.sorted_indices)
        # Longest first, row by row in time: the order of packed data.
        return PackedSequence(
            data[valid], packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
    return layout(output, given.batched, batch_first)


def layout(x: Tensor, batched: bool, batch_first: bool) -> Tensor:
    """Move the axes (T, N, ...) to the layer's convention: (N, T, ...) or (T, ...)."""
    if not batched:
        return x.squeeze(1)
    return x.transpose(0, 1) if batch_first else x
