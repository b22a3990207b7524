"""Plain LSTMs and GRUs over a sequence: the library's products, one kernel around each.

Behind the signature of :func:`pfrnn.functional.rnn.run_rnn`. Products are float32 and the
library's, batched over members; so a member's numbers in another population are equal to rounding
only, as on the reference path.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from pfrnn.functional.batch_norm import pool
from pfrnn.functional.rnn import RNNStep, gru_step, run_rnn
from pfrnn.functional.sequence import Given, check_lengths
from pfrnn.functional.types import RNNOutput, RNNState, RNNSwitches
from pfrnn.kernels.dispatch import rnn_refusal
from pfrnn.kernels.plan import ACTIVATION, inner_contiguous, power_of_two, strides
from pfrnn.kernels.rnn_cells import (
    gru_backward,
    gru_forward,
    gru_gates,
    gru_reset_backward,
    lstm_backward,
    lstm_forward,
)

# A program holds all sequences of a batch where batch norm sums over them.
MAX_SEQUENCES = 256
_UNITS = 16


class Loop(NamedTuple):
    """Static choices and sizes of a run.

    Attributes:
        gru: else an LSTM.
        steps: T.
        members: M.
        sequences: N.
        units: H.
        activation: its code.
        norm: whether the candidate is normalised.
        measured: by the batch's own statistics.
        eps: of the batch norm.
        bptt: steps between cuts of the gradient, or None.
    """

    gru: bool
    steps: int
    members: int
    sequences: int
    units: int
    activation: int
    norm: bool
    measured: bool
    eps: float
    bptt: int | None

    @property
    def rows(self) -> int:
        """Sequences that a program owns (R)."""
        return power_of_two(self.sequences) if self.measured else 32

    def cut(self, t: int) -> bool:
        """Whether the gradient of the state before step t is cut."""
        return self.bptt is not None and 0 < t < self.steps and t % self.bptt == 0


class Extra(NamedTuple):
    """Tensors without a gradient: valid (T, M, N) and given statistics (M, H) or (T, M, H)."""

    valid: Tensor | None
    mean: Tensor | None
    variance: Tensor | None


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
        switches: static choices; :func:`pfrnn.kernels.dispatch.rnn_refusal` says which it can't
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
    function = _FusedGRU if gru else _FusedLSTM
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


class _Run:
    """What launches of one run share: its grid, arguments and batch-norm memory."""

    def __init__(
        self, loop: Loop, extra: Extra, like: Tensor, gain: Tensor | None, shift: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.loop, self.dummy = loop, like
        self.grid = (-(-loop.sequences // loop.rows), -(-loop.units // _UNITS), loop.members)
        if measured is None:
            size = (loop.members, loop.steps, loop.units) if loop.norm else (0,)
            measured = like.new_empty(size), like.new_empty(size)
        self.mean, self.variance = measured
        given = extra.mean is not None
        valid = extra.valid.view(torch.uint8) if extra.valid is not None else like
        self.sizes = {"t": 0, "T": loop.steps, "N": loop.sequences}
        self.tiles = {"H": loop.units, "R": loop.rows, "BU": _UNITS, "grid": self.grid}
        self.shared = {
            "valid_": valid,
            "valid_t": 0 if extra.valid is None else valid.stride(0),
            "valid_m": 0 if extra.valid is None else valid.stride(1),
            "mean_": extra.mean if given else self.mean,
            "var_": extra.variance if given else self.variance,
            "given_t": _step_stride(extra.mean),
            "gain_": like if gain is None else gain.contiguous(),
            "shift_": like if shift is None else shift.contiguous(),
            "eps": loop.eps,
            "ACT": loop.activation, "NORM": loop.norm, "GIVEN": given,
            "VALID": extra.valid is not None,
        }  # fmt: skip
        self.held = extra.valid is not None or loop.gru

    def sums(self) -> tuple[Tensor, Tensor]:
        """Memory of the programs' sums for the batch norm's gradients."""
        loop = self.loop
        size = (loop.members, loop.steps, self.grid[0], loop.units) if loop.norm else (0,)
        return self.dummy.new_empty(size), self.dummy.new_empty(size)

    def launch(self, kernel: Any, t: int, plain: bool = False, **arguments: Any) -> None:
        """Launch a step's kernel; ``plain`` ones know no batch norm and no padding."""
        shared = {} if plain else self.shared
        kernel.run(
            **arguments, **shared, **(self.sizes | {"t": t}), **self.tiles, num_warps=4,
            warmup=False,
        )  # fmt: skip


def _step_stride(given: Tensor | None) -> int:
    return given.stride(0) if given is not None and given.dim() == 3 else 0


def _rows_of(x: Tensor) -> Tensor:
    """Fold time into the rows of each member: (M, T, N, C) -> (M, T N, C), no copy."""
    return x.flatten(1, 2)


def _states(loop: Loop, start: Tensor) -> Tensor:
    """Memory of a state before and after every step, (M, T+1, N, H), with its start."""
    size = (loop.members, loop.steps + 1, loop.sequences, loop.units)
    states = start.new_empty(size)
    states[:, 0] = start
    return states


class _FusedLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, loop: Loop, extra: Extra, projected: Tensor, hidden_0: Tensor,
        cell_0: Tensor, recurrent: Tensor, _: None, gain: Tensor | None, shift: Tensor | None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        projected = inner_contiguous(projected)
        hidden, cell = _states(loop, hidden_0), _states(loop, cell_0)
        size = (loop.members, loop.sequences, 4 * loop.units)
        product = projected.new_empty(size)
        blocks = projected.new_empty(size[0], loop.steps, *size[1:])
        run = _Run(loop, extra, hidden, gain, shift)
        x_t, x_m = strides(projected)
        for t in range(loop.steps):
            torch.bmm(hidden[:, t], recurrent, out=product)
            run.launch(
                lstm_forward, t, product_=product, blocks_=blocks, x_=projected, x_t=x_t, x_m=x_m,
                hidden_=hidden, cell_=cell,
            )  # fmt: skip
        ctx.loop, ctx.extra = loop, extra
        ctx.save_for_backward(blocks, hidden, cell, recurrent, gain, shift, run.mean, run.variance)
        statistics = [x.transpose(0, 1) if loop.norm else x for x in (run.mean, run.variance)]
        ctx.mark_non_differentiable(*statistics)
        return hidden[:, 1:].transpose(0, 1), cell[:, -1], *statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor, grad_cell: Tensor, *_: Any) -> Any:
        loop, extra = ctx.loop, ctx.extra
        blocks, hidden, cell, recurrent, gain, shift, *measured = ctx.saved_tensors
        run = _Run(loop, extra, hidden, gain, shift, tuple(measured))
        grad_hidden = inner_contiguous(grad_hidden)
        gh_t, gh_m = strides(grad_hidden)
        dblocks = torch.empty_like(blocks)
        # Two buffers in turn: no launch writes what its own programs read.
        shape = (2, loop.members, loop.sequences, loop.units)
        dh, dc = hidden.new_empty(shape), hidden.new_empty(shape)
        dh[loop.steps % 2].zero_()
        dc[loop.steps % 2] = grad_cell
        dgain, dshift = run.sums()
        for t in reversed(range(loop.steps)):
            now, before = (t + 1) % 2, t % 2
            run.launch(
                lstm_backward, t, blocks_=blocks, cell_=cell, gh_=grad_hidden, gh_t=gh_t,
                gh_m=gh_m, dh_=dh[now], dc_=dc[now], held_=dh[before], dc_out_=dc[before],
                dblocks_=dblocks, dgain_=dgain, dshift_=dshift, CUT=loop.cut(t + 1),
            )  # fmt: skip
            _through(dh[before], dblocks[:, t], recurrent, run.held)
        across = torch.bmm(_rows_of(hidden[:, :-1]).mT, _rows_of(dblocks))
        return (
            None, None, dblocks.transpose(0, 1), dh[0], dc[0], across, None,
            *(_whole(x, loop) for x in (dgain, dshift)),
        )  # fmt: skip


class _FusedGRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, loop: Loop, extra: Extra, projected: Tensor, hidden_0: Tensor, _: None,
        recurrent: Tensor, candidate: Tensor, gain: Tensor | None, shift: Tensor | None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        projected = inner_contiguous(projected)
        hidden = _states(loop, hidden_0)
        size = (loop.members, loop.steps, loop.sequences)
        blocks = projected.new_empty(*size, 2 * loop.units)
        raw, inner = (projected.new_empty(*size, loop.units) for _ in range(2))
        gates, candidates = (
            projected.new_empty(loop.members, loop.sequences, wide * loop.units) for wide in (2, 1)
        )
        run = _Run(loop, extra, hidden, gain, shift)
        x_t, x_m = strides(projected)
        given = {"x_": projected, "x_t": x_t, "x_m": x_m, "blocks_": blocks, "hidden_": hidden}
        for t in range(loop.steps):
            torch.bmm(hidden[:, t], recurrent, out=gates)
            run.launch(gru_gates, t, plain=True, product_=gates, inner_=inner, **given)
            torch.bmm(inner[:, t], candidate, out=candidates)
            run.launch(gru_forward, t, product_=candidates, raw_=raw, **given)
        ctx.loop, ctx.extra = loop, extra
        ctx.save_for_backward(
            blocks, raw, inner, hidden, recurrent, candidate, gain, shift, run.mean, run.variance
        )
        statistics = [x.transpose(0, 1) if loop.norm else x for x in (run.mean, run.variance)]
        last = hidden[:, -1].new_empty(0)
        ctx.mark_non_differentiable(last, *statistics)
        return hidden[:, 1:].transpose(0, 1), last, *statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor, *_: Any) -> Any:
        loop, extra = ctx.loop, ctx.extra
        blocks, raw, inner, hidden, recurrent, candidate, gain, shift, *measured = ctx.saved_tensors
        run = _Run(loop, extra, hidden, gain, shift, tuple(measured))
        grad_hidden = inner_contiguous(grad_hidden)
        gh_t, gh_m = strides(grad_hidden)
        dblocks = blocks.new_empty(*blocks.shape[:-1], 3 * loop.units)
        size = (loop.members, loop.sequences, loop.units)
        dh, held, dinner = (hidden.new_empty(*lead, *size) for lead in ((2,), (), ()))
        dh[loop.steps % 2].zero_()
        dgain, dshift = run.sums()
        given = {"blocks_": blocks, "hidden_": hidden, "held_": held, "dblocks_": dblocks}
        gates = slice(0, 2 * loop.units)
        for t in reversed(range(loop.steps)):
            now, before = (t + 1) % 2, t % 2
            run.launch(
                gru_backward, t, raw_=raw, gh_=grad_hidden, gh_t=gh_t, gh_m=gh_m, dh_=dh[now],
                dgain_=dgain, dshift_=dshift, CUT=loop.cut(t + 1), **given,
            )  # fmt: skip
            torch.bmm(dblocks[:, t, :, 2 * loop.units :], candidate.mT, out=dinner)
            run.launch(gru_reset_backward, t, plain=True, dinner_=dinner, out_=dh[before], **given)
            _through(dh[before], dblocks[:, t, :, gates], recurrent, True)
        wide = _rows_of(dblocks)
        across = torch.bmm(_rows_of(hidden[:, :-1]).mT, wide[..., gates])
        within = torch.bmm(_rows_of(inner).mT, wide[..., 2 * loop.units :])
        return (
            None, None, dblocks.transpose(0, 1), dh[0], None, across, within,
            *(_whole(x, loop) for x in (dgain, dshift)),
        )  # fmt: skip


def _through(out: Tensor, gates: Tensor, weight: Tensor, add: bool) -> None:
    """Take gates' gradients through their product: out = gates weight^T, or add it to out."""
    if add:
        out.baddbmm_(gates, weight.mT)
    else:
        torch.bmm(gates, weight.mT, out=out)


def _whole(parts: Tensor, loop: Loop) -> Tensor | None:
    """Add up the programs' and steps' sums: (M, T, programs, H) -> (M, H)."""
    return parts.sum((1, 2)) if loop.norm else None
