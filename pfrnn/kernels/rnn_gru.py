"""A GRU's steps but for their two products: two kernels each way, and the loops around them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import FunctionCtx

from pfrnn.kernels.elementary import sigmoid
from pfrnn.kernels.ground import first_order, inner_contiguous, strides
from pfrnn.kernels.rnn_parts import PLAIN, candidate_gradient, candidate_of, places, valid_rows
from pfrnn.kernels.rnn_run import Extra, Loop, Run, rows_of, states, through, whole
from pfrnn.kernels.tiles import load_tile, store_tile


@triton.jit(do_not_specialize=["t", "T", "N", "x_t", "x_m"])
def gru_gates(
    product_, blocks_, x_, x_t, x_m, hidden_, inner_, t, T, N, H: tl.constexpr, R: tl.constexpr,
    BU: tl.constexpr,
):  # fmt: skip
    """A GRU's gates behind their product, and what the candidate's multiplies, r h."""
    m, row, unit, mask = places(N, H, R, BU)
    t = t.to(tl.int64)  # offsets of long sequences pass 2^31
    G: tl.constexpr = 2 * H
    product, blocks = product_ + m * N * G, blocks_ + (m * T + t) * N * G
    x = x_ + t * x_t + m * x_m
    reset = load_tile(product, row, unit, mask, G) + load_tile(x, row, unit, mask, 3 * H)
    update = load_tile(product + H, row, unit, mask, G) + load_tile(x + H, row, unit, mask, 3 * H)
    h = load_tile(hidden_ + (m * (T + 1) + t) * N * H, row, unit, mask, H)
    reset = sigmoid(reset)
    store_tile(blocks, reset, row, unit, mask, G)
    store_tile(blocks + H, sigmoid(update), row, unit, mask, G)
    store_tile(inner_ + (m * T + t) * N * H, reset * h, row, unit, mask, H)


@triton.jit(do_not_specialize=PLAIN)
def gru_forward(
    product_, blocks_, raw_, x_, x_t, x_m, hidden_, valid_, valid_t, valid_m, mean_, var_, given_t,
    gain_, shift_, t, T, N, eps, H: tl.constexpr, ACT: tl.constexpr, NORM: tl.constexpr,
    GIVEN: tl.constexpr, VALID: tl.constexpr, R: tl.constexpr, BU: tl.constexpr,
):  # fmt: skip
    """Step t of a GRU behind its candidate's product: h' = (1 - z) act(BN(n)) + z h."""
    m, row, unit, mask = places(N, H, R, BU)
    t = t.to(tl.int64)  # offsets of long sequences pass 2^31
    ok = valid_rows(valid_, valid_t, valid_m, m, t, row, N, VALID)
    x = x_ + t * x_t + m * x_m + 2 * H
    here, at = (m * (T + 1) + t) * N * H, (m * T + t) * N * H
    raw = load_tile(product_ + m * N * H, row, unit, mask, H) + load_tile(x, row, unit, mask, 3 * H)
    update = load_tile(blocks_ + 2 * at + H, row, unit, mask, 2 * H)
    h = load_tile(hidden_ + here, row, unit, mask, H)
    candidate = candidate_of(
        raw, ok, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_, eps,
        H, ACT, NORM, GIVEN,
    )  # fmt: skip
    store_tile(raw_ + at, raw if NORM else candidate, row, unit, mask, H)
    new = candidate + update * (h - candidate)
    if VALID:
        new = tl.where(ok[:, None], new, h)
    store_tile(hidden_ + here + N * H, new, row, unit, mask, H)


@triton.jit(do_not_specialize=[*PLAIN, "gh_t", "gh_m"])
def gru_backward(
    blocks_, raw_, hidden_, gh_, gh_t, gh_m, dh_, held_, dblocks_, valid_, valid_t, valid_m,
    mean_, var_, given_t, gain_, shift_, dgain_, dshift_, t, T, N, eps, H: tl.constexpr,
    ACT: tl.constexpr, NORM: tl.constexpr, GIVEN: tl.constexpr, VALID: tl.constexpr,
    CUT: tl.constexpr, R: tl.constexpr, BU: tl.constexpr,
):  # fmt: skip
    """Gradients of step t's update gate and candidate before their products.

    ``held`` (M, N, H) takes the hidden state's share that goes past both.
    """
    m, row, unit, mask = places(N, H, R, BU)
    t = t.to(tl.int64)  # offsets of long sequences pass 2^31
    ok = valid_rows(valid_, valid_t, valid_m, m, t, row, N, VALID)
    here, at, carry = (m * (T + 1) + t) * N * H, (m * T + t) * N * H, m * N * H
    dblocks = dblocks_ + 3 * at
    dh = load_tile(gh_ + t * gh_t + m * gh_m, row, unit, mask, H)
    if not CUT:
        dh += load_tile(dh_ + carry, row, unit, mask, H)
    update = load_tile(blocks_ + 2 * at + H, row, unit, mask, 2 * H)
    kept, h = (
        load_tile(raw_ + at, row, unit, mask, H),
        load_tile(hidden_ + here, row, unit, mask, H),
    )
    dn, candidate = candidate_gradient(
        dh * (1.0 - update), kept, ok, unit, mask, m, t, T, mean_, var_, given_t, gain_,
        shift_, dgain_, dshift_, eps, H, ACT, NORM, GIVEN,
    )  # fmt: skip
    dz = dh * (h - candidate) * update * (1.0 - update)
    held = dh * update
    if VALID:
        dz = tl.where(ok[:, None], dz, 0.0)
        held = tl.where(ok[:, None], held, dh)
    store_tile(dblocks + H, dz, row, unit, mask, 3 * H)
    store_tile(dblocks + 2 * H, dn, row, unit, mask, 3 * H)
    store_tile(held_ + carry, held, row, unit, mask, H)


@triton.jit(do_not_specialize=["t", "T", "N"])
def gru_reset_backward(
    blocks_, hidden_, dinner_, held_, out_, dblocks_, t, T, N, H: tl.constexpr, R: tl.constexpr,
    BU: tl.constexpr,
):  # fmt: skip
    """The reset gate's gradient, given that of r h, (M, N, H), and the hidden state's share."""
    m, row, unit, mask = places(N, H, R, BU)
    t = t.to(tl.int64)  # offsets of long sequences pass 2^31
    here, at, carry = (m * (T + 1) + t) * N * H, (m * T + t) * N * H, m * N * H
    dinner = load_tile(dinner_ + carry, row, unit, mask, H)
    reset = load_tile(blocks_ + 2 * at, row, unit, mask, 2 * H)
    h = load_tile(hidden_ + here, row, unit, mask, H)
    dr = dinner * h * reset * (1.0 - reset)
    store_tile(dblocks_ + 3 * at, dr, row, unit, mask, 3 * H)
    held = load_tile(held_ + carry, row, unit, mask, H) + dinner * reset
    store_tile(out_ + carry, held, row, unit, mask, H)


class FusedGRU(torch.autograd.Function):
    """A population's GRU over a sequence; gradients of everything but the statistics."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, loop: Loop, extra: Extra, projected: Tensor, hidden_0: Tensor, _: None,
        recurrent: Tensor, candidate: Tensor, gain: Tensor | None, shift: Tensor | None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Return hidden (T, M, N, H), the last cell, and the steps' mean and variance."""
        projected = inner_contiguous(projected)
        hidden = states(loop, hidden_0)
        size = (loop.members, loop.steps, loop.sequences)
        blocks = projected.new_empty(*size, 2 * loop.units)
        raw, inner = (projected.new_empty(*size, loop.units) for _ in range(2))
        gates, candidates = (
            projected.new_empty(loop.members, loop.sequences, wide * loop.units) for wide in (2, 1)
        )
        run = Run(loop, extra, hidden, gain, shift)
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
    @first_order
    def backward(ctx: Any, grad_hidden: Tensor, *_: Any) -> Any:
        """Return the gradient of each argument of :meth:`forward`."""
        loop, extra = ctx.loop, ctx.extra
        blocks, raw, inner, hidden, recurrent, candidate, gain, shift, *measured = ctx.saved_tensors
        run = Run(loop, extra, hidden, gain, shift, tuple(measured))
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
            through(dh[before], dblocks[:, t, :, gates], recurrent, True)
        wide = rows_of(dblocks)
        across = torch.bmm(rows_of(hidden[:, :-1]).mT, wide[..., gates])
        within = torch.bmm(rows_of(inner).mT, wide[..., 2 * loop.units :])
        return (
            None, None, dblocks.transpose(0, 1), dh[0], None, across, within,
            *(whole(x, loop) for x in (dgain, dshift)),
        )  # fmt: skip
