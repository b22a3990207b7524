"""An LSTM's steps but for their product: one kernel each way, and the loops around them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import FunctionCtx

from pfrnn.kernels.elementary import sigmoid, tanh
from pfrnn.kernels.ground import first_order, inner_contiguous, strides
from pfrnn.kernels.rnn_parts import PLAIN, candidate_gradient, candidate_of, places, valid_rows
from pfrnn.kernels.rnn_run import Extra, Loop, Run, rows_of, states, through, whole
from pfrnn.kernels.tiles import load_tile, store_tile


@triton.jit(do_not_specialize=PLAIN)
def lstm_forward(
    product_, blocks_, x_, x_t, x_m, hidden_, cell_, valid_, valid_t, valid_m, mean_, var_, given_t,
    gain_, shift_, t, T, N, eps, H: tl.constexpr, ACT: tl.constexpr, NORM: tl.constexpr,
    GIVEN: tl.constexpr, VALID: tl.constexpr, R: tl.constexpr, BU: tl.constexpr,
):  # fmt: skip
    """Step t of an LSTM behind its product: c' = f c + i act(BN(c~)), h' = o tanh(c')."""
    m, row, unit, mask = places(N, H, R, BU)
    t = t.to(tl.int64)  # offsets of long sequences pass 2^31
    G: tl.constexpr = 4 * H
    ok = valid_rows(valid_, valid_t, valid_m, m, t, row, N, VALID)
    product, blocks = product_ + m * N * G, blocks_ + (m * T + t) * N * G
    x = x_ + t * x_t + m * x_m
    here = (m * (T + 1) + t) * N * H
    gate_in = load_tile(product, row, unit, mask, G) + load_tile(x, row, unit, mask, G)
    forget = load_tile(product + H, row, unit, mask, G) + load_tile(x + H, row, unit, mask, G)
    raw = load_tile(product + 2 * H, row, unit, mask, G) + load_tile(x + 2 * H, row, unit, mask, G)
    out = load_tile(product + 3 * H, row, unit, mask, G) + load_tile(x + 3 * H, row, unit, mask, G)
    c = load_tile(cell_ + here, row, unit, mask, H)
    gate_in, forget, out = sigmoid(gate_in), sigmoid(forget), sigmoid(out)
    candidate = candidate_of(
        raw, ok, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_, eps,
        H, ACT, NORM, GIVEN,
    )  # fmt: skip
    cell = forget * c + gate_in * candidate
    hidden = out * tanh(cell)
    store_tile(blocks, gate_in, row, unit, mask, G)
    store_tile(blocks + H, forget, row, unit, mask, G)
    store_tile(blocks + 2 * H, raw if NORM else candidate, row, unit, mask, G)
    store_tile(blocks + 3 * H, out, row, unit, mask, G)
    if VALID:
        cell = tl.where(ok[:, None], cell, c)
        hidden = tl.where(ok[:, None], hidden, load_tile(hidden_ + here, row, unit, mask, H))
    store_tile(cell_ + here + N * H, cell, row, unit, mask, H)
    store_tile(hidden_ + here + N * H, hidden, row, unit, mask, H)


@triton.jit(do_not_specialize=[*PLAIN, "gh_t", "gh_m"])
def lstm_backward(
    blocks_, cell_, gh_, gh_t, gh_m, dh_, dc_, held_, dc_out_, dblocks_, valid_, valid_t, valid_m,
    mean_, var_, given_t, gain_, shift_, dgain_, dshift_, t, T, N, eps, H: tl.constexpr,
    ACT: tl.constexpr, NORM: tl.constexpr, GIVEN: tl.constexpr, VALID: tl.constexpr,
    CUT: tl.constexpr, R: tl.constexpr, BU: tl.constexpr,
):  # fmt: skip
    """Gradients of step t before its product, (M, T, N, 4 H), and of the cell before it.

    ``dh``, ``dc`` (M, N, H) are of the state after it, unless a cut follows (CUT); ``held`` takes
    what sequences that sit the step out hand on.
    """
    m, row, unit, mask = places(N, H, R, BU)
    t = t.to(tl.int64)  # offsets of long sequences pass 2^31
    G: tl.constexpr = 4 * H
    ok = valid_rows(valid_, valid_t, valid_m, m, t, row, N, VALID)
    blocks, dblocks = blocks_ + (m * T + t) * N * G, dblocks_ + (m * T + t) * N * G
    here, carry = (m * (T + 1) + t) * N * H, m * N * H
    dh = load_tile(gh_ + t * gh_t + m * gh_m, row, unit, mask, H)
    dc = tl.zeros([R, BU], tl.float32)
    if not CUT:
        dh += load_tile(dh_ + carry, row, unit, mask, H)
        dc += load_tile(dc_ + carry, row, unit, mask, H)
    gate_in, forget = (
        load_tile(blocks, row, unit, mask, G),
        load_tile(blocks + H, row, unit, mask, G),
    )
    kept, out = (
        load_tile(blocks + 2 * H, row, unit, mask, G),
        load_tile(blocks + 3 * H, row, unit, mask, G),
    )
    c = load_tile(cell_ + here, row, unit, mask, H)
    bent = tanh(load_tile(cell_ + here + N * H, row, unit, mask, H))
    moving = mask & ok[:, None]
    dcell = dc + dh * out * (1.0 - bent * bent)
    dn, candidate = candidate_gradient(
        dcell * gate_in, kept, ok, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_,
        dgain_, dshift_, eps, H, ACT, NORM, GIVEN,
    )  # fmt: skip
    di = tl.where(moving, dcell * candidate * gate_in * (1.0 - gate_in), 0.0)
    df = tl.where(moving, dcell * c * forget * (1.0 - forget), 0.0)
    do = tl.where(moving, dh * bent * out * (1.0 - out), 0.0)
    store_tile(dblocks, di, row, unit, mask, G)
    store_tile(dblocks + H, df, row, unit, mask, G)
    store_tile(dblocks + 2 * H, dn, row, unit, mask, G)
    store_tile(dblocks + 3 * H, do, row, unit, mask, G)
    dcell *= forget
    if VALID:
        dcell = tl.where(ok[:, None], dcell, dc)
        store_tile(held_ + carry, tl.where(ok[:, None], 0.0, dh), row, unit, mask, H)
    store_tile(dc_out_ + carry, dcell, row, unit, mask, H)


class FusedLSTM(torch.autograd.Function):
    """A population's LSTM over a sequence; gradients of everything but the statistics."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, loop: Loop, extra: Extra, projected: Tensor, hidden_0: Tensor,
        cell_0: Tensor, recurrent: Tensor, _: None, gain: Tensor | None, shift: Tensor | None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Return hidden (T, M, N, H), the last cell, and the steps' mean and variance."""
        projected = inner_contiguous(projected)
        hidden, cell = states(loop, hidden_0), states(loop, cell_0)
        size = (loop.members, loop.sequences, 4 * loop.units)
        product = projected.new_empty(size)
        blocks = projected.new_empty(size[0], loop.steps, *size[1:])
        run = Run(loop, extra, hidden, gain, shift)
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
    @first_order
    def backward(ctx: Any, grad_hidden: Tensor, grad_cell: Tensor, *_: Any) -> Any:
        """Return the gradient of each argument of :meth:`forward`."""
        loop, extra = ctx.loop, ctx.extra
        blocks, hidden, cell, recurrent, gain, shift, *measured = ctx.saved_tensors
        run = Run(loop, extra, hidden, gain, shift, tuple(measured))
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
            through(dh[before], dblocks[:, t], recurrent, run.held)
        across = torch.bmm(rows_of(hidden[:, :-1]).mT, rows_of(dblocks))
        return (
            None, None, dblocks.transpose(0, 1), dh[0], dc[0], across, None,
            *(whole(x, loop) for x in (dgain, dshift)),
        )  # fmt: skip
