"""Plain LSTMs and GRUs over a sequence: the library's products, one kernel after each.

A plain RNN's step is one product of the hidden state with all gates' weights (a GRU's two), which
the library batches over members well, and a dozen small operations, each a launch of microseconds.
Here these are one launch after each product, forwards and backwards.

Behind the signature of :func:`pfrnn.functional.rnn.run_rnn`. The loop's products are float32 and
the library's, batched over members; so a member's numbers in another population are equal to
rounding only, as on the reference path.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfrnn.functional.batch_norm import pool
from pfrnn.functional.rnn import RNNStep, gru_step, run_rnn
from pfrnn.functional.sequence import Given, check_lengths
from pfrnn.functional.types import RNNOutput, RNNState, RNNSwitches
from pfrnn.kernels.form import ACTIVATION
from pfrnn.kernels.ground import rnn_refusal
from pfrnn.kernels.rnn_gru import FusedGRU
from pfrnn.kernels.rnn_lstm import FusedLSTM
from pfrnn.kernels.rnn_run import Extra, Loop

# A program holds all sequences of a batch where batch norm sums over them.
MAX_SEQUENCES = 256


def run_rnn_fused(
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
    """Run a plain RNN over T steps; the same function as the reference ``run_rnn``.

    Batches of more than 256 sequences whose batch norm takes its own statistics are left to it.

    Args:
        step: ``lstm_step`` or ``gru_step``.
        projected: (T, N, P), or (T, M, N, P) for a population; float32.
        state: before the first step.
        weights: an LSTMWeights or GRUWeights.
        switches: static choices; :func:`pfrnn.kernels.ground.rnn_refusal` says which it can't
            do.
        statistics: given batch-norm statistics, (..., H) or (T, ..., H).
        valid: (T, ..., N) bool.
        bptt: cut the gradient of the carried state before every ``bptt``-th step.

    Raises:
        ConfigError: T is 0, or bptt is below 1.
        ValueError: what the kernels refuse.
    """
    check_lengths(projected.shape[0], bptt)
    why = rnn_refusal(step, switches, projected.dtype)
    if why is not None:
        raise ValueError(f"the kernels can't run this RNN: {why}; use run_rnn")
    measured = switches.batch_norm != "none" and statistics is None
    if measured and projected.shape[-2] > MAX_SEQUENCES:
        return run_rnn(step, projected, state, weights, switches, valid=valid, bptt=bptt)
    if projected.dim() == 3:
        output = run_rnn_fused(
            step, projected.unsqueeze(1), RNNState(*(_lead(x) for x in state)),
            type(weights)(*(_lead(x) for x in weights)), switches,
            statistics=None if statistics is None else tuple(x.unsqueeze(-2) for x in statistics),
            valid=None if valid is None else valid.unsqueeze(1), bptt=bptt,
        )  # fmt: skip
        return _drop_lead(output)
    gru = step is gru_step
    steps, members, sequences, _ = projected.shape
    units = state.hidden.shape[-1]
    loop = Loop(
        gru, steps, members, sequences, units, ACTIVATION[switches.activation],
        switches.batch_norm != "none", measured, switches.norm_eps, bptt,
    )  # fmt: skip
    given = (None, None) if statistics is None else tuple(x.contiguous() for x in statistics)
    extra = Extra(None if valid is None else valid.contiguous(), *given)
    function = FusedGRU if gru else FusedLSTM
    hidden, cell, mean, variance = function.apply(
        loop, extra, projected, state.hidden, *_tensors(loop, state, weights)
    )
    final = RNNState(hidden[-1], None if gru else cell)
    if not measured:
        return RNNOutput(hidden, final)
    if valid is None:
        counts = mean.new_full((steps, members), float(sequences))
    else:
        counts = valid.sum(-1).to(mean.dtype)
    return RNNOutput(hidden, final, *pool(mean, variance, counts), mean, variance, counts)


def _tensors(loop: Loop, state: RNNState, weights: Any) -> tuple[Tensor | None, ...]:
    """Return cell, recurrent, candidate, gain and shift, with what a model lacks made up."""
    gain, shift = weights.norm_gain, weights.norm_shift
    if loop.norm:
        like = weights.recurrent.new_ones(loop.members, loop.units)
        gain = like if gain is None else gain
        shift = torch.zeros_like(like) if shift is None else shift
    candidate = weights.candidate if loop.gru else None
    return state.cell, weights.recurrent, candidate, gain, shift


def _lead(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.unsqueeze(0)


def _drop_lead(output: RNNOutput) -> RNNOutput:
    final = RNNState(*(None if x is None else x.squeeze(0) for x in output.final))
    pooled = (None if x is None else x.squeeze(0) for x in output[2:5])
    timed = (None if x is None else x.squeeze(1) for x in output[5:])
    return RNNOutput(output.hidden.squeeze(1), final, *pooled, *timed)
