"""Input and state of a layer, checked in torch.nn.LSTM's words; packed and unbatched input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from pfrnn.functional.arguments import check_mask, check_tensor
from pfrnn.functional.autocast import autocasting
from pfrnn.functional.types import PFState, RNNState
from pfrnn.nn.state import broadcast_state

# What autocast converts to the type of its products.
_CAST = {torch.float16, torch.bfloat16, torch.float32}


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
        TypeError: x is neither a dense tensor nor packed.
        ValueError: x has another number of axes, or another dtype than the weights.
        RuntimeError: another number of features, no time step, or another device.
    """
    if isinstance(x, PackedSequence):
        _check_data(x.data, 2, input_size, like)
        data, lengths = pad_packed_sequence(x)
        steps = torch.arange(data.shape[0], device=data.device).unsqueeze(-1)
        return Sequences(data, steps < lengths.to(data.device), x, True)
    check_input(x, name, "a Tensor or a PackedSequence")
    if x.dim() not in (2, 3):
        raise ValueError(f"{name}: Expected input to be 2D or 3D, got {x.dim()}D instead")
    batched = x.dim() == 3
    if not batched:
        x = x.unsqueeze(1)
    elif batch_first:
        x = x.transpose(0, 1)
    _check_data(x, 3, input_size, like)
    if x.shape[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    return Sequences(x, None, None, batched)


def check_run(
    name: str, x: Any, input_size: int, valid: Tensor | None, like: Tensor, axes: str
) -> None:
    """Refuse what a cell can't run over.

    Args:
        name: of the cell, for messages.
        x: (T, ..., N, input_size).
        input_size: D.
        valid: (T, ..., N) bool, or None.
        like: a parameter, whose dtype and device the input must have.
        axes: the expected shape of x in words.

    Raises:
        TypeError: x is no tensor, or ``valid`` none of bool.
        ValueError: another number of axes or dtype, or ``valid`` doesn't fit x.
        RuntimeError: another number of features, or another device.
    """
    check_input(x, name, "a Tensor")
    check_mask("valid", valid, "(T, ..., N)")
    if x.dim() < axes.count(","):
        raise ValueError(f"{name}: expected input of shape {axes}, got {_sizes(x.shape)}")
    _check_data(x, x.dim(), input_size, like)
    if valid is not None and valid.shape != x.shape[:-1]:
        raise ValueError(
            f"valid: expected shape (T, ..., N) = {_sizes(x.shape[:-1])}, got {_sizes(valid.shape)}"
        )


def check_units(name: str, part: Tensor | None, hidden_size: int, like: Tensor) -> None:
    """Refuse a part of a state with another number of units, dtype or device.

    Raises:
        ValueError: another dtype.
        RuntimeError: another number of units, or another device.
    """
    if part is None:
        return
    if part.shape[-1:] != (hidden_size,):
        raise RuntimeError(
            f"{name}: expected {hidden_size} units (hidden_size) in the last axis, got shape "
            f"{_sizes(part.shape)}"
        )
    check_kind(name, part, like)


def check_input(x: Any, name: str, kinds: str) -> None:
    """Refuse an input that is no tensor, or one that isn't dense.

    Raises:
        TypeError: naming the module, what was expected and what came.
    """
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name}: Expected input to be {kinds}, got: {type(x).__name__}; "
            "torch.as_tensor makes a tensor of numbers"
        )
    if x.is_nested or x.layout != torch.strided:
        kind = "nested" if x.is_nested else "sparse"
        cure = "torch.nn.utils.rnn.pack_sequence(x.unbind())" if x.is_nested else "x.to_dense()"
        raise TypeError(f"{name}: Expected input to be dense, got a {kind} tensor; take {cure}")


def check_numbers(
    name: str, given: Tensor | None, axes: str, shape: tuple[int, ...], like: Tensor
) -> None:
    """Refuse random numbers that don't fit a layer's call.

    Args:
        name: of the argument.
        given: the numbers, or None.
        axes: the expected shape, in words.
        shape: the same in numbers.
        like: a parameter, on whose device the numbers must be.

    Raises:
        TypeError: no tensor.
        ValueError: another shape.
        RuntimeError: on another device.
    """
    check_tensor(name, given, axes)
    if given is None:
        return
    if tuple(given.shape) != shape:
        raise ValueError(f"{name}: expected {axes} = {_sizes(shape)}, got {_sizes(given.shape)}")
    check_place(name, given, like)


def check_place(name: str, given: Tensor, like: Tensor) -> None:
    """Refuse a tensor on another device than the parameters, in torch.nn.LSTM's words.

    Raises:
        RuntimeError: naming both.
    """
    if given.device != like.device:
        title = name[:1].upper() + name[1:]
        raise RuntimeError(
            f"{title} and parameter tensors are not at the same device, found {name} tensor at "
            f"{given.device} and parameter tensor at {like.device}"
        )


def check_kind(name: str, given: Tensor | None, like: Tensor) -> None:
    """Refuse a tensor of another dtype than the parameters, or on another device.

    Raises:
        ValueError: another dtype; autocast converts half precision and float32 by itself.
        RuntimeError: another device.
    """
    if given is None:
        return
    check_place(name, given, like)
    if not _fitting(given, like):
        raise ValueError(
            f"{name}: expected dtype {like.dtype}, the weights', got {given.dtype}; "
            f"convert it with .to({like.dtype})"
        )


def _fitting(given: Tensor, like: Tensor) -> bool:
    """Whether a product of both has one dtype: the same, or what autocast makes the same."""
    if given.dtype == like.dtype:
        return True
    return {given.dtype, like.dtype} <= _CAST and autocasting(given.device)


def _sizes(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))})"


def _check_data(x: Tensor, dims: int, input_size: int, like: Tensor) -> None:
    check_place("input", x, like)
    if not _fitting(x, like):
        raise ValueError(
            f"RNN input dtype ({x.dtype}) does not match weight dtype ({like.dtype}). "
            f"Convert input: input.to({like.dtype}), or convert model: model.to({x.dtype})"
        )
    if x.dim() != dims:
        raise RuntimeError(f"input must have {dims} dimensions, got {x.dim()}")
    if x.shape[-1] != input_size:
        raise RuntimeError(
            f"input.size(-1) must be equal to input_size. Expected {input_size}, got {x.shape[-1]}"
        )


def arrange_state(
    hx: Any,
    batched: bool,
    expected: tuple[int, int, int],
    num_particles: int,
    has_cell: bool,
    like: Tensor,
) -> PFState:
    """Bring a given state into the batched form (layers, N, K, H), and check it.

    Args:
        hx: a :class:`PFState` or a plain tuple of its three parts, or what torch.nn.LSTM
            (h_0, c_0) or torch.nn.GRU (h_0) takes, which is given to every particle.
        batched: whether the input was batched; the state must agree.
        expected: (num_layers, N, H).
        num_particles: K for a state without particles.
        has_cell: whether the state needs a cell.
        like: a parameter, whose dtype and device the state must have.

    Raises:
        TypeError: hx is neither kind of state.
        ValueError: another dtype than the weights'.
        RuntimeError: a shape differs (torch.nn.LSTM's wording), or the device.
    """
    hx = _belief(hx)
    plain = not isinstance(hx, PFState)
    if plain:
        hidden, cell = _plain_state(hx, has_cell)
    else:
        hidden, cell = hx.hidden, hx.cell
    if has_cell != (cell is not None):
        raise RuntimeError(
            f"Expected a state {'with' if has_cell else 'without'} a cell tensor; "
            f"take the state that this kind of layer returned"
        )
    for part in (hidden, cell):
        check_kind("hx", part, like)
    if not plain:
        check_place("hx", hx.log_weights, like)
    wanted = (3 if batched else 2) + (0 if plain else 1)
    if hidden.dim() != wanted or (cell is not None and cell.dim() != wanted):
        raise RuntimeError(_axes_message(batched, wanted, hidden, cell))
    weights = None if plain else hx.log_weights
    if not batched:
        hidden = hidden.unsqueeze(1)
        cell = None if cell is None else cell.unsqueeze(1)
        weights = None if weights is None else weights.unsqueeze(1)
    layers, sequences, size = expected
    count = num_particles if plain else hidden.shape[2]
    shape = expected if plain else (layers, sequences, count, size)
    for part, message in (
        (hidden, "Expected hidden[0] size {}, got {}"),
        (cell, "Expected hidden[1] size {}, got {}"),
    ):
        if part is not None and part.shape != shape:
            text = message if has_cell else "Expected hidden size {}, got {}"
            raise RuntimeError(text.format(shape, list(part.shape)))
    if weights is None:
        return broadcast_state(RNNState(hidden, cell), num_particles)
    if weights.shape != shape[:-1]:
        raise RuntimeError(f"Expected log_weights size {shape[:-1]}, got {list(weights.shape)}")
    return PFState(hidden, cell, weights)


def _belief(hx: Any) -> Any:
    """Make a state of its three parts again: ``tuple(part.detach() for part in state)``, say."""
    if isinstance(hx, PFState) or not isinstance(hx, tuple | list) or len(hx) != 3:
        return hx
    hidden, cell, log_weights = hx
    whole = isinstance(hidden, Tensor) and isinstance(log_weights, Tensor)
    return PFState(*hx) if whole and isinstance(cell, Tensor | None) else hx


def _plain_state(hx: Any, has_cell: bool) -> tuple[Tensor, Tensor | None]:
    """Take torch.nn.LSTM's pair (h_0, c_0), or torch.nn.GRU's h_0."""
    if not has_cell:
        if isinstance(hx, Tensor):
            return hx, None
        wanted = "a tensor h_0, as torch.nn.GRU takes"
    else:
        # A tensor can be unpacked too: into whatever its first axis holds.
        pair = isinstance(hx, tuple | list) and len(hx) == 2
        if pair and all(isinstance(part, Tensor) for part in hx):
            return hx[0], hx[1]
        wanted = "a tuple of tensors (h_0, c_0), as torch.nn.LSTM takes"
    got = type(hx).__name__
    if isinstance(hx, tuple | list):
        got += f" of {', '.join(type(part).__name__ for part in hx) or 'nothing'}"
    raise TypeError(f"hx should be {wanted}, or a PFState that a layer returned, got: {got}")


def _axes_message(batched: bool, wanted: int, hidden: Tensor, cell: Tensor | None) -> str:
    which = "batched 3-D" if batched else "unbatched 2-D"
    if cell is None:
        return f"For {which} input, hx should also be {wanted}-D but got {hidden.dim()}-D tensor"
    return (
        f"For {which} input, hx and cx should also be {wanted}-D but got "
        f"({hidden.dim()}-D, {cell.dim()}-D) tensors"
    )


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
