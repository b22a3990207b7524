"""One kernel a time step: finish step t, start step t + 1.

Batch norm couples all sequences of a member within a step, so that its statistics are the one
thing for which programs must wait for each other. The kernel boundary is that barrier: kernel t
combines the partial sums of step t, updates the particles, weighs and resamples them, and ends
with the noisy candidate of step t + 1 and its partial sums.

Memory, member first so that the weight gradient needs no copies (all contiguous):
hidden (M, T+1, N, K, H) after resampling; cell (M, T+1, N, K, H) before resampling, gathered when
it is read; log_weights (M, T+1, N, K); prior (M, T, N, K), log-weights before resampling; raw
(M, T, N, K, H), the noisy candidate; ancestors (M, T+1, N, K), row 0 the identity; ess (M, T, N);
part (M, 2, P, 2, HP), sums of two steps in turn; mean, variance (M, T, H); y (M, T, N, K, OUT), a
head's outputs (:mod:`pfrnn.kernels.readout`). Blocks of weights, gate by gate: LSTM input, forget,
output, candidate, scale; GRU update, reset, candidate, scale.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.dependent_launch import launch_dependents, wait_for_previous
from pfrnn.kernels.elementary import sigmoid, softplus, tanh
from pfrnn.kernels.philox import normal_tile
from pfrnn.kernels.readout import store_outputs
from pfrnn.kernels.tiles import (
    activate,
    comes_last,
    draw,
    load_input,
    load_tile,
    mixture,
    moments,
    normalized,
    pick,
    product,
    store_tile,
)


@triton.jit
def candidate(
    h, h_base, scratch, row, unit, live, mask, w, wd, first, x, n2, N, seed, step, noise, t,
    GRU: tl.constexpr, SOFTPLUS: tl.constexpr, NOISE: tl.constexpr, E: tl.constexpr,
    H: tl.constexpr, HP: tl.constexpr, KP: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr,
    FETCH: tl.constexpr,
):  # fmt: skip
    """Candidate before batch norm: W_c [h, x] + noise * scale; NOISE 1 reads it, 2 draws it."""
    last: tl.constexpr = 3 if GRU else 4
    if GRU:
        reset = product(h, h_base, H, 1, row, live, w, wd, first, 1, H, HP, BK, PREC, FETCH)
        inner = sigmoid(reset + load_input(x, n2, N, H, unit, E, H, KP)) * h
        if HP > BK:
            store_tile(scratch, inner, row, unit, mask, H)
            tl.debug_barrier()
        raw = product(inner, scratch, H, 1, row, live, w, wd, first, 2, H, HP, BK, PREC, FETCH)
    else:
        raw = product(h, h_base, H, 1, row, live, w, wd, first, 3, H, HP, BK, PREC, FETCH)
    raw += load_input(x, n2, N, (last - 1) * H, unit, E, H, KP)
    if NOISE != 0:
        scale = product(h, h_base, H, 1, row, live, w, wd, first, last, H, HP, BK, PREC, FETCH)
        scale += load_input(x, n2, N, last * H, unit, E, H, KP)
        if SOFTPLUS:
            scale = softplus(scale)
        if NOISE == 1:
            eps = load_tile(noise, row, unit, mask, H)
        else:
            eps = normal_tile(seed, step, t, row, H, HP)
        raw += scale * eps
    return tl.where(mask, raw, 0.0)


@triton.jit
def transition(
    h, c, h_base, row, unit, live, mask, w, wd, first, x, n2, N, new,
    GRU: tl.constexpr, E: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, KP: tl.constexpr,
    BK: tl.constexpr, PREC: tl.constexpr, FETCH: tl.constexpr,
):  # fmt: skip
    """Move the particles, given the activated candidate: (cell, hidden) before resampling."""
    if GRU:
        gate = product(h, h_base, H, 1, row, live, w, wd, first, 0, H, HP, BK, PREC, FETCH)
        gate = sigmoid(gate + load_input(x, n2, N, 0, unit, E, H, KP))
        moved = new + gate * (h - new)
        cell = moved
    else:
        gate = product(h, h_base, H, 1, row, live, w, wd, first, 0, H, HP, BK, PREC, FETCH)
        cell = sigmoid(gate + load_input(x, n2, N, 0, unit, E, H, KP)) * new
        gate = product(h, h_base, H, 1, row, live, w, wd, first, 1, H, HP, BK, PREC, FETCH)
        cell += sigmoid(gate + load_input(x, n2, N, H, unit, E, H, KP)) * c
        gate = product(h, h_base, H, 1, row, live, w, wd, first, 2, H, HP, BK, PREC, FETCH)
        moved = sigmoid(gate + load_input(x, n2, N, 2 * H, unit, E, H, KP)) * tanh(cell)
    return cell, moved


# What differs between batches isn't compiled for: full and last ones, a population and what is left
# of it run one program, and so sum in one order. Not listed are strides by which whole tiles are
# read, where vector loads matter.
@triton.jit(
    do_not_specialize=[
        "t", "T", "N", "P", "x_t", "x_m", "u_t", "u_m", "valid_t", "valid_m", "count_t", "count_m",
    ]
)  # fmt: skip
def forward_kernel(
    hidden_, cell_, lw_, raw_, prior_, part_, mean_, var_, anc_, ess_, scratch_,
    x_, x_t, x_m, w_, obs_, gain_, shift_, u_, u_t, u_m, noise_, noise_t, noise_m, seed_, step_,
    valid_, valid_t, valid_m, count_, count_t, count_m, gmean_, gvar_, given_t,
    t, T, N, P, alpha, norm_eps, read_, y_, wd_, ticket_,
    FIRST: tl.constexpr, LAST: tl.constexpr, GRU: tl.constexpr, SOFTPLUS: tl.constexpr,
    NOISE: tl.constexpr, ACT: tl.constexpr, NORM: tl.constexpr, GIVEN: tl.constexpr,
    VALID: tl.constexpr, MODE: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, R: tl.constexpr, BK: tl.constexpr, PB: tl.constexpr, PREC: tl.constexpr,
    OUT: tl.constexpr, DEPENDENT: tl.constexpr, FETCH: tl.constexpr, TICKET: tl.constexpr,
):  # fmt: skip
    """Finish step t (unless FIRST), start the next one (unless LAST); grid (P, M)."""
    S: tl.constexpr = R // KP
    G: tl.constexpr = 4 if GRU else 5
    E: tl.constexpr = G * H + 1
    p = tl.program_id(0)
    m = tl.program_id(1).to(tl.int64)
    local = tl.arange(0, R)
    n = p * S + local // KP
    k = local % KP
    row = n * K + k
    live = (k < K) & (n < N)
    unit = tl.arange(0, HP)
    mask = live[:, None] & (unit < H)[None, :]
    n2 = p * S + tl.arange(0, S)
    k2 = tl.arange(0, KP)
    row2 = n2[:, None] * K + k2[None, :]
    live2 = (k2 < K)[None, :] & (n2 < N)[:, None]
    inside = (k2 < K)[None, :] & (n2 >= 0)[:, None]
    w = w_ + m * (G * H * H)
    first = tl.program_id(1) * G
    NK = N * K
    here = m * (T + 1) * NK
    launch_dependents(DEPENDENT)
    wait_for_previous(DEPENDENT)
    if FIRST:
        start = t
        h = load_tile(hidden_ + here * H, row, unit, mask, H)
    else:
        start = t + 1
        at = here + t.to(tl.int64) * NK
        x = x_ + t.to(tl.int64) * x_t + m * x_m
        h = load_tile(hidden_ + at * H, row, unit, mask, H)
        new = load_tile(raw_ + (at - m * NK) * H, row, unit, mask, H)
        if NORM:
            if GIVEN:
                given = m * H + t.to(tl.int64) * given_t
                mean = tl.load(gmean_ + given + unit, mask=unit < H, other=0.0)
                var = tl.load(gvar_ + given + unit, mask=unit < H, other=1.0)
            elif TICKET:
                out = (m * T + t) * H
                mean = tl.load(mean_ + out + unit, mask=unit < H, other=0.0)
                var = tl.load(var_ + out + unit, mask=unit < H, other=1.0)
            else:
                count = count_ + t.to(tl.int64) * count_t + m * count_m
                mean, var = moments(part_ + (m * 2 + t % 2) * P * 2 * HP, count, P, HP, PB, "")
                if p == 0:
                    out = (m * T + t) * H
                    tl.store(mean_ + out + unit, mean, mask=unit < H)
                    tl.store(var_ + out + unit, var, mask=unit < H)
            gain = tl.load(gain_ + m * H + unit, mask=unit < H, other=0.0)
            shift = tl.load(shift_ + m * H + unit, mask=unit < H, other=0.0)
            scale = gain * tl.rsqrt(var + norm_eps)
            new = (new - mean[None, :]) * scale[None, :] + shift[None, :]
        new = activate(new, ACT)
        if GRU:
            c = h
        else:
            parent = n * K + tl.load(anc_ + at + row, mask=live, other=0)
            c = load_tile(cell_ + at * H, parent, unit, mask, H)
        cell, moved = transition(
            h, c, hidden_ + at * H, row, unit, live, mask, w, wd_, first, x, n2, N, new,
            GRU, E, H, HP, KP, BK, PREC, FETCH,
        )  # fmt: skip
        obs = tl.load(obs_ + m * H + unit, mask=unit < H, other=0.0)
        fit = tl.reshape(tl.sum(tl.where(mask, moved * obs[None, :], 0.0), 1), [S, KP])
        fit += tl.load(x + n2 * E + (E - 1), mask=n2 < N, other=0.0)[:, None]
        old = tl.load(lw_ + at + row2, mask=live2, other=0.0)
        lw = normalized(old + fit, inside)
        tl.store(prior_ + (at - m * NK) + row2, lw, mask=live2)
        weight, q = mixture(lw, inside, alpha, K, MODE)
        ess = 1.0 / tl.sum(weight * weight, 1)
        anc = tl.zeros([S, KP], tl.int32) + k2[None, :]
        if MODE != 0:
            if MODE == 3:
                u = tl.load(u_ + t.to(tl.int64) * u_t + m * u_m + n2 * K, mask=n2 < N, other=0.0)
                drawn = (u[:, None] + k2[None, :].to(tl.float32)) / K
            else:
                at_u = u_ + t.to(tl.int64) * u_t + m * u_m + row2
                drawn = tl.load(at_u, mask=live2, other=0.0)
            anc = draw(q, drawn, K, KP)
            if MODE == 1:
                ratio = tl.where(inside, lw - tl.log(tl.where(inside, q, 1.0)), 0.0)
                lw = normalized(pick(ratio, anc, KP), inside)
            else:
                lw = normalized(tl.zeros([S, KP], tl.float32), inside)
        if VALID:
            flag = valid_ + t.to(tl.int64) * valid_t + m * valid_m
            ok2 = tl.load(flag + n2, mask=n2 < N, other=0) != 0
            ok = tl.load(flag + n, mask=n < N, other=0) != 0
            kept = 1.0 / tl.sum(tl.where(inside, tl.exp(2.0 * old), 0.0), 1)
            ess = tl.where(ok2, ess, kept)
            lw = tl.where(ok2[:, None], lw, old)
            anc = tl.where(ok2[:, None], anc, tl.zeros([S, KP], tl.int32) + k2[None, :])
            moved = tl.where(ok[:, None], moved, h)
            cell = tl.where(ok[:, None], cell, c)
        nxt = at + NK
        if not GRU:
            store_tile(cell_ + nxt * H, cell, row, unit, mask, H)
        tl.store(lw_ + nxt + row2, lw, mask=live2)
        tl.store(anc_ + nxt + row2, anc, mask=live2)
        ess = tl.minimum(tl.maximum(ess, 1.0), K * 1.0)
        tl.store(ess_ + (m * T + t) * N + n2, ess, mask=n2 < N)
        if MODE != 0:
            source = tl.reshape(anc + (tl.arange(0, S) * KP)[:, None], [R])
            h = tl.gather(moved, source[:, None] + tl.zeros([R, HP], tl.int32), 0)
        else:
            h = moved
        if OUT != 0:
            y = y_ + (at - m * NK) * OUT
            store_outputs(y, h, read_ + m * H * OUT, row, unit, live, H, OUT)
        store_tile(hidden_ + nxt * H, h, row, unit, mask, H)
        if HP > BK:
            tl.debug_barrier()
    if not LAST:
        at = here + start.to(tl.int64) * NK
        x = x_ + start.to(tl.int64) * x_t + m * x_m
        noise = noise_ + start.to(tl.int64) * noise_t + m * noise_m
        raw = candidate(
            h, hidden_ + at * H, scratch_ + m * NK * H, row, unit, live, mask, w, wd_, first,
            x, n2, N, tl.load(seed_ + m), tl.load(step_), noise, start, GRU, SOFTPLUS, NOISE,
            E, H, HP, KP, BK, PREC, FETCH,
        )  # fmt: skip
        store_tile(raw_ + (at - m * NK) * H, raw, row, unit, mask, H)
        if NORM and not GIVEN:
            counted = live
            if VALID:
                flag = valid_ + start.to(tl.int64) * valid_t + m * valid_m
                counted = live & (tl.load(flag + n, mask=n < N, other=0) != 0)
            total = tl.sum(tl.where(counted[:, None], raw, 0.0), 0)
            size = tl.maximum(tl.sum(counted.to(tl.float32), 0), 1.0)
            gap = tl.where(counted[:, None], raw - (total / size)[None, :], 0.0)
            part = part_ + ((m * 2 + start % 2) * P + p) * 2 * HP
            tl.store(part + unit, total)
            tl.store(part + HP + unit, tl.sum(gap * gap, 0))
            if TICKET:
                if comes_last(ticket_ + m, P):
                    count = count_ + start.to(tl.int64) * count_t + m * count_m
                    parts = part_ + (m * 2 + start % 2) * P * 2 * HP
                    mean, var = moments(parts, count, P, HP, PB, ".cg")
                    out = (m * T + start) * H
                    tl.store(mean_ + out + unit, mean, mask=unit < H)
                    tl.store(var_ + out + unit, var, mask=unit < H)
