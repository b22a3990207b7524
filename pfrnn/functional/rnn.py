"""Plain LSTM and GRU with the same free leading axes, optionally with BN and ReLU.

Gate order is torch's: LSTM input, forget, candidate, output; GRU reset, update, candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.batch_norm import Statistics, apply_batch_norm
from pfrnn.functional.linear import activate, affine, split, tanh
from pfrnn.functional.sequence import Given, at_step, check_lengths, pooled_statistics, time_slices
from pfrnn.functional.types import RNNInfo, RNNOutput, RNNState, RNNSwitches


class LSTMWeights(NamedTuple):
    """recurrent (..., H, 4H): input, forget, candidate, output; batch norm (..., H) or None."""

    recurrent: Tensor
    norm_gain: Tensor | None = None
    norm_shift: Tensor | None = None


class GRUWeights(NamedTuple):
    """Weights of a plain GRU.

    Attributes:
        recurrent: (..., H, 2H): reset, update.
        candidate: (..., H, H), applied to r * h (or to h, with ``reset_after``).
        norm_gain: (..., H) or None.
        norm_shift: (..., H) or None.
        candidate_bias: (..., H), inside the reset gate; read with ``reset_after`` only.
    """

    recurrent: Tensor
    candidate: Tensor
    norm_gain: Tensor | None = None
    norm_shift: Tensor | None = None
    candidate_bias: Tensor | None = None


RNNStep = Callable[..., tuple[RNNState, RNNInfo]]


def lstm_step(
    state: RNNState,
    projected: Tensor,
    weights: LSTMWeights,
    switches: RNNSwitches,
    statistics: Given | None = None,
    valid: Tensor | None = None,
) -> tuple[RNNState, RNNInfo]:
    """Advance an LSTM by one step: c' = f c + i act(BN(c~)), h' = o tanh(c').

    Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000).

    Args:
        state: hidden and cell, (..., N, H).
        projected: (..., N, 4H), the input's share, biases included.
        weights: see :class:`LSTMWeights`.
        switches: tanh without batch norm is the usual LSTM; ReLU with it is LSTM-BNReLU.
        statistics: batch-norm mean and variance, (..., H); None takes the step's own.
        valid: (..., N) bool; padded sequences keep their state.

    Returns:
        The new state, and the step's batch-norm statistics (:class:`RNNInfo`).

    Raises:
        ValueError: a state without a cell.
    """
    if state.cell is None:
        raise ValueError("an LSTM state needs a cell tensor, got None")
    blocks = affine(state.hidden, weights.recurrent) + projected
    gate_in, forget, raw, out = blocks.chunk(4, -1)
    candidate, own = _candidate(
        raw, weights.norm_gain, weights.norm_shift, switches, statistics, valid
    )
    cell = torch.addcmul(torch.sigmoid(forget) * state.cell, torch.sigmoid(gate_in), candidate)
    hidden = torch.sigmoid(out) * tanh(cell)
    return _hold(state, RNNState(hidden, cell), valid), _info(own)


def gru_step(
    state: RNNState,
    projected: Tensor,
    weights: GRUWeights,
    switches: RNNSwitches,
    statistics: Given | None = None,
    valid: Tensor | None = None,
) -> tuple[RNNState, RNNInfo]:
    """Advance a GRU by one step: h' = (1 - z) act(BN(n)) + z h, n = W [r h, x] + b.

    Cho et al. 2014.

    Args:
        state: hidden (..., N, H).
        projected: (..., N, 3H): reset, update, candidate.
        weights: see :class:`GRUWeights`.
        switches: ``reset_after`` takes torch.nn.GRU's n = W x + b + r (U h + b_h).
        statistics: batch-norm mean and variance, (..., H); None takes the step's own.
        valid: (..., N) bool; padded sequences keep their state.

    Returns:
        The new state, and the step's batch-norm statistics (:class:`RNNInfo`).
    """
    hidden = state.hidden
    size = hidden.shape[-1]
    x_gates, x_candidate = split(projected, (2 * size, size))
    gates = torch.sigmoid(affine(hidden, weights.recurrent) + x_gates)
    reset, update = split(gates, (size, size))
    if switches.reset_after:
        inner = affine(hidden, weights.candidate)
        if weights.candidate_bias is not None:
            inner = inner + weights.candidate_bias.unsqueeze(-2)
        raw = torch.addcmul(x_candidate, reset, inner)
    else:
        raw = affine(reset * hidden, weights.candidate) + x_candidate
    candidate, own = _candidate(
        raw, weights.norm_gain, weights.norm_shift, switches, statistics, valid
    )
    new = torch.addcmul(candidate, update, hidden - candidate)
    return _hold(state, RNNState(new, None), valid), _info(own)


def _candidate(
    raw: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    switches: RNNSwitches,
    statistics: Given | None,
    valid: Tensor | None,
) -> tuple[Tensor, Statistics | None]:
    if switches.batch_norm == "none":
        return activate(raw, switches.activation), None
    # A plain RNN is one particle: the particle axis makes the same batch norm serve both.
    normed, own = apply_batch_norm(
        raw.unsqueeze(-2), gain, shift, switches.batch_norm, switches.norm_eps, statistics, valid
    )
    return activate(normed.squeeze(-2), switches.activation), own


def _info(own: Statistics | None) -> RNNInfo:
    return RNNInfo(None, None, None) if own is None else RNNInfo(*own)


def _hold(previous: RNNState, state: RNNState, valid: Tensor | None) -> RNNState:
    if valid is None:
        return state
    wide = valid.unsqueeze(-1)
    cell = state.cell
    if cell is not None and previous.cell is not None:
        cell = torch.where(wide, cell, previous.cell)
    return RNNState(torch.where(wide, state.hidden, previous.hidden), cell)


def run_rnn(
    step: RNNStep,
    projected: Tensor,
    state: RNNState,
    weights: Any,
    switches: RNNSwitches,
    *,
    statistics: Given | None = None,
    valid: Tensor | None = None,
    bptt: int | None = None,
) -> RNNOutput:
    """Run a plain RNN over T steps; arguments as in :func:`run_pf`.

    Args:
        step: :func:`lstm_step` or :func:`gru_step`.
        projected: (T, ..., N, P).
        state: the state before the first step.
        weights: the step's weights.
        switches: static choices.
        statistics: (..., H), or (T, ..., H); None takes each step's own.
        valid: (T, ..., N) bool.
        bptt: cut the gradient of the carried state before every ``bptt``-th step; None never.

    Returns:
        See :class:`RNNOutput`: hidden (T, ..., N, H) and the state after the last step.

    Raises:
        ConfigError: T is 0, or ``bptt`` is not an int of at least 1.
    """
    steps = projected.shape[0]
    check_lengths(steps, bptt)
    inputs, masks = time_slices(projected, steps), time_slices(valid, steps)
    hidden, infos = [], []
    for t in range(steps):
        if bptt is not None and t > 0 and t % bptt == 0:
            cell = None if state.cell is None else state.cell.detach()
            state = RNNState(state.hidden.detach(), cell)
        given = at_step(statistics, t, projected.dim() - 3)
        state, info = step(state, inputs[t], weights, switches, given, masks[t])
        hidden.append(state.hidden)
        infos.append(info)
    return RNNOutput(torch.stack(hidden), state, *pooled_statistics(infos))
