"""The backward kernel of a time step: finish the gradient of step t, start that of step t - 1.

Its shape mirrors the forward kernel's: the batch norm's gradient needs two sums over all sequences
of a member (the shift's and the gain's gradient), so one kernel ends with the partial sums of step
t - 1 and the next one begins by combining them. Gates are recomputed from the stored particles;
noise comes again from the counter. What crosses the boundary (the carry): the gradient of the
batch norm's output, the hidden state's gradient through the other gates, the cell's, the weights'.

Gate gradients go to ``gates``, the particles that they multiply to ``inner``; from both,
:mod:`pfrnn.kernels.weight_gradient` adds up the weights' gradient every few steps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.backward_parts import (
    input_columns,
    load_block,
    load_columns,
    load_statistics,
    noise_columns,
    norm_gradient,
    product_columns,
    resampling_gradient,
    scale_slope,
    scatter_columns,
    store_columns,
    store_gate,
    store_slab,
)
from pfrnn.kernels.dependent_launch import launch_dependents, wait_for_previous
from pfrnn.kernels.elementary import sigmoid, tanh
from pfrnn.kernels.readout import PARTS, add_weights_gradient, outputs_gradient
from pfrnn.kernels.tiles import activate, activate_slope, comes_last, total_pair


# As in the forward kernel.
@triton.jit(
    # Where the gradient of the log-weights begins, within a tensor of one step more, is aligned or
    # not with the batch: it isn't worth a program of its own for an odd last batch.
    do_not_specialize_on_alignment=["gl_"],
    do_not_specialize=[
        "t", "slot", "slot_before", "cut", "T", "N", "P", "SLOTS", "x_t", "x_m",
        "valid_t", "valid_m", "total_t", "total_m", "gl_t", "gl_m", "gy_t", "gy_m",
    ]
)  # fmt: skip
def backward_kernel(
    hidden_, cell_, lw_, raw_, prior_, mean_, var_, anc_,
    x_, x_t, x_m, w_, wt_, obs_, gain_, shift_, noise_, noise_t, noise_m, seed_, step_,
    valid_, valid_t, valid_m, total_, total_t, total_m, gmean_, gvar_, given_t,
    gh_, gh_t, gh_m, gl_, gl_t, gl_m,
    gates_, inner_, dnorm_, dhid_, dcell_, dlw_, part_, sums_, dx_, dobs_,
    t, slot, slot_before, cut, T, N, P, SLOTS, alpha, norm_eps, read_, dread_, gy_, gy_t, gy_m,
    wd_, wtd_, ticket_, scale_,
    FIRST: tl.constexpr, LAST: tl.constexpr, GRU: tl.constexpr, SOFTPLUS: tl.constexpr,
    NOISE: tl.constexpr, ACT: tl.constexpr, NORM: tl.constexpr, GIVEN: tl.constexpr,
    VALID: tl.constexpr, MODE: tl.constexpr, GH: tl.constexpr, GL: tl.constexpr, H: tl.constexpr,
    HP: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, R: tl.constexpr, BK: tl.constexpr,
    PB: tl.constexpr, PREC: tl.constexpr, OUT: tl.constexpr, DEPENDENT: tl.constexpr,
    FETCH: tl.constexpr, TICKET: tl.constexpr, LATE: tl.constexpr, END: tl.constexpr,
    LEAN: tl.constexpr,
):  # fmt: skip
    """Finish step t (unless FIRST), start step t - 1 (unless LAST); grid (P, M).

    The carry holds the gradients of the state after step t - 1 (that is, before step t). END: t is
    T; other launches that only start a step belong to steps in two launches.
    """
    S: tl.constexpr = R // KP
    G: tl.constexpr = 4 if GRU else 5
    E: tl.constexpr = G * H + 1
    B: tl.constexpr = H * H
    INNER: tl.constexpr = 2 if GRU else 1
    # Blocks that are read before the wait are fetched there; others, where LEAN all, just before
    # their products, which takes less shared memory.
    LATER: tl.constexpr = 2 if FETCH else 0
    AHEAD: tl.constexpr = 1 if FETCH and not LEAN else LATER
    p, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    local = tl.arange(0, R)
    n = p * S + local // KP
    slab, PR = p * R + local, P * R
    row = n * K + local % KP
    live = (local % KP < K) & (n < N)
    unit = tl.arange(0, HP)
    mask = (unit < H)[:, None] & live[None, :]
    n2, k2 = p * S + tl.arange(0, S), tl.arange(0, KP)
    row2 = n2[:, None] * K + k2[None, :]
    live2 = (k2 < K)[None, :] & (n2 < N)[:, None]
    inside = (k2 < K)[None, :] & (n2 >= 0)[:, None]
    w, wt = w_ + m * (G * B), wt_ + m * (G * B)
    first = tl.program_id(1) * G
    NK = N * K
    here, carry = m * (T + 1) * NK, m * NK * H
    launch_dependents(DEPENDENT)
    scale = 1.0
    if gates_.dtype.element_ty == tl.float16:
        scale = tl.load(scale_ + m)
    # What no backward launch writes comes first, while the launch before this one may still run.
    gain = tl.load(gain_ + m * H + unit, mask=unit < H, other=0.0)
    # Barriers hold loads back, and few warps hide them: what is small is read long before its use.
    if not LAST:
        before = t - 1
        at1 = here + before.to(tl.int64) * NK
        nxt1 = at1 + NK
        x1 = x_ + before.to(tl.int64) * x_t + m * x_m
        obs = tl.load(obs_ + m * H + unit, mask=unit < H, other=0.0)
        dobs_at = dobs_ + (m * P + p) * HP + unit
        anc = tl.load(anc_ + nxt1 + row2, mask=live2, other=0)
        new_lw = tl.load(lw_ + nxt1 + row2, mask=live2, other=-1e30)
        lw = tl.load(prior_ + (at1 - m * NK) + row2, mask=live2, other=-1e30)
        if GL:
            at_gl = gl_ + before.to(tl.int64) * gl_t + m * gl_m
            dl_out = tl.load(at_gl + row2, mask=live2, other=0.0)
        if MODE != 0:
            source = tl.load(anc_ + nxt1 + row, mask=live, other=0) + (local // KP) * KP
        if not LATE:
            x_0 = input_columns(x1, n2, N, 0, unit, E, H, KP)
        if not GRU:
            if not LATE:
                parent = n * K + tl.load(anc_ + at1 + row, mask=live, other=0)
                x_1 = input_columns(x1, n2, N, H, unit, E, H, KP)
                x_2 = input_columns(x1, n2, N, 2 * H, unit, E, H, KP)
        if NORM and not LATE:
            shift = tl.load(shift_ + m * H + unit, mask=unit < H, other=0.0)
            given1 = m * H + before.to(tl.int64) * given_t
            mean1, var1 = load_statistics(
                gmean_ + given1, gvar_ + given1, mean_, var_, (m * T + before) * H, unit, H, GIVEN
            )
    c: tl.constexpr = 2 if GRU else 3
    if not FIRST:
        at = here + t.to(tl.int64) * NK
        raw = load_columns(raw_ + (at - m * NK) * H, row, unit, mask, H)
        if NOISE != 0:
            given_eps = noise_ + t.to(tl.int64) * noise_t + m * noise_m
            eps = noise_columns(given_eps, seed_ + m, step_, t, row, unit, mask, NOISE, H, HP)
        block = load_block(wt, wtd_, first, c, H, HP, BK, AHEAD)
        if GRU:
            ahead = load_block(w, wd_, first, 1, H, HP, BK, AHEAD)
        elif NOISE != 0:
            last = load_block(wt, wtd_, first, c + 1, H, HP, BK, AHEAD)
    wait_for_previous(DEPENDENT)
    if not LAST:
        dobs = tl.load(dobs_at)
        # Two buffers in turn: threads that hold copies of a weight must all read before one writes.
        dl = tl.load(dlw_ + (m * 2 + t % 2) * NK + row2, mask=live2, other=0.0)
    if not FIRST:
        dn = load_columns(dnorm_ + carry, row, unit, mask, H)
        if NORM:
            given = m * H + t.to(tl.int64) * given_t
            mean, var = load_statistics(
                gmean_ + given, gvar_ + given, mean_, var_, (m * T + t) * H, unit, H, GIVEN
            )
            dn = norm_gradient(
                dn, raw, mean, tl.rsqrt(var + norm_eps), gain,
                part_ + (m * 2 + t % 2) * P * 2 * HP, sums_ + (m * T + t) * 2 * H,
                total_ + t.to(tl.int64) * total_t + m * total_m, p, P, unit,
                H, HP, PB, GIVEN, TICKET,
            )  # fmt: skip
            if VALID:
                flag = valid_ + t.to(tl.int64) * valid_t + m * valid_m
                ok = tl.load(flag + n, mask=n < N, other=0) != 0
                dn = tl.where(ok[None, :], dn, 0.0)
            dn = tl.where(mask, dn, 0.0)
        gates = gates_ + (m * SLOTS + slot) * (G * H) * PR
        dx = dx_ + (m * T + t) * N * E
        x, h_base = x_ + t.to(tl.int64) * x_t + m * x_m, hidden_ + at * H
        store_gate(gates, dx, dn, slab, PR, unit, n2, N, c, S, KP, H, HP, BK, G, scale)
        if NOISE != 0:
            ds = dn * eps
            if SOFTPLUS:
                ds *= scale_slope(
                    w, wd_, first, c + 1, h_base, row, unit, live, mask, x, n2, N,
                    E, H, HP, KP, BK, PREC, LATER,
                )  # fmt: skip
            store_gate(gates, dx, ds, slab, PR, unit, n2, N, c + 1, S, KP, H, HP, BK, G, scale)
        carried = load_columns(dhid_ + carry, row, unit, mask, H)
        through = product_columns(
            block, dn, gates + c * H * PR, 1, PR, slab, live, wt, wtd_, first, c,
            H, HP, BK, PREC, AHEAD,
        )  # fmt: skip
        if GRU:
            h = load_columns(h_base, row, unit, mask, H)
            block = load_block(wt, wtd_, first, 1, H, HP, BK, LATER)
            if NOISE != 0:
                last = load_block(wt, wtd_, first, c + 1, H, HP, BK, LATER)
            reset = product_columns(
                ahead, h, h_base, H, 1, row, live, w, wd_, first, 1, H, HP, BK, PREC, AHEAD
            )
            reset = sigmoid(reset + input_columns(x, n2, N, H, unit, E, H, KP))
            store_slab(inner_ + ((m * SLOTS + slot) * 2 + 1) * H * PR, reset * h, slab, PR, unit, H)
            dr = tl.where(mask, through * h * reset * (1.0 - reset), 0.0)
            through *= reset
            store_gate(gates, dx, dr, slab, PR, unit, n2, N, 1, S, KP, H, HP, BK, G, scale)
            through += product_columns(
                block, dr, gates + H * PR, 1, PR, slab, live, wt, wtd_, first, 1,
                H, HP, BK, PREC, LATER,
            )  # fmt: skip
        if NOISE != 0:
            through += product_columns(
                last, ds, gates + (c + 1) * H * PR, 1, PR, slab, live, wt, wtd_, first, c + 1,
                H, HP, BK, PREC, LATER if GRU else AHEAD,
            )  # fmt: skip
        dh = through + carried
        if LAST:
            store_columns(dhid_ + carry, dh, row, unit, mask, H)
    else:
        dh = load_columns(dhid_ + carry, row, unit, mask, H)
    if not LAST:
        keep = 1.0 - cut.to(tl.float32)
        h_base, dx = hidden_ + at1 * H, dx_ + (m * T + before) * N * E
        # The weights: gradient of the unnormalised ones, from those of the resampled ones.
        dl *= keep
        if GL:
            dl += dl_out
        flag = valid_ + before.to(tl.int64) * valid_t + m * valid_m
        if VALID:
            ok = tl.load(flag + n, mask=n < N, other=0) != 0
        dl, held_dl = resampling_gradient(
            dl, new_lw, lw, anc, inside, live2, flag + n2, n2 < N, alpha, K, KP, MODE, VALID
        )
        tl.store(dx + n2 * E + (E - 1), tl.sum(dl, 1), mask=n2 < N)
        tl.store(dlw_ + (m * 2 + before % 2) * NK + row2, held_dl, mask=live2)
        dfit = tl.reshape(dl, [R])
        # The particles: from the children of each to the particle itself.
        if MODE != 0:
            select = ((source[:, None] == local[None, :]) & live[:, None]).to(tl.float32)
        dh *= keep
        if GH:
            dh += load_columns(gh_ + before.to(tl.int64) * gh_t + m * gh_m, row, unit, mask, H)
        if OUT != 0:
            gy = gy_ + before.to(tl.int64) * gy_t + m * gy_m
            dh = outputs_gradient(dh, gy, read_ + m * H * OUT, row, live, unit, H, OUT)
        if VALID:
            held = dh
        g: tl.constexpr = 0 if GRU else 2
        block = load_block(w, wd_, first, g, H, HP, BK, LATER)
        ahead = load_block(wt, wtd_, first, g, H, HP, BK, LATER)
        if MODE != 0:
            dh = scatter_columns(dh, select)
        if VALID:
            dh = tl.where(ok[None, :], dh, 0.0)
        dh += dfit[None, :] * obs[:, None]
        # The gates, one after the other; each is recomputed where its gradient needs it.
        h = load_columns(h_base, row, unit, mask, H)
        if not GRU:
            bent = load_columns(cell_ + nxt1 * H, row, unit, mask, H)
            if not LATE:
                dc = load_columns(dcell_ + carry, row, unit, mask, H)
        if OUT != 0:
            add_weights_gradient(
                dread_ + (m * P + p) * OUT * PARTS * HP, gy, gy_t, h, hidden_ + nxt1 * H,
                row, unit, live, mask, t, END, R, H, HP, OUT,
            )  # fmt: skip
        inner = inner_ + (m * SLOTS + slot_before) * INNER * H * PR
        store_slab(inner, h, slab, PR, unit, H)
        gates = gates_ + (m * SLOTS + slot_before) * (G * H) * PR
        if not GRU:
            if LATE:
                x_2 = input_columns(x1, n2, N, 2 * H, unit, E, H, KP)
            gate = product_columns(
                block, h, h_base, H, 1, row, live, w, wd_, first, 2, H, HP, BK, PREC, LATER
            )
            gate = sigmoid(gate + x_2)
            bent = tanh(bent)
            moved = gate * bent
            tl.store(dobs_at, dobs + tl.sum(dfit[None, :] * moved, 1))
            if LATE:
                # One tile is left of four before the next comes.
                grad = tl.where(mask, dh * moved * (1.0 - gate), 0.0)
                store_gate(gates, dx, grad, slab, PR, unit, n2, N, 2, S, KP, H, HP, BK, G, scale)
                share = dh * gate * (1.0 - bent * bent)
                dc = load_columns(dcell_ + carry, row, unit, mask, H)
            dc *= keep
            if VALID:
                held_dc = dc
            if MODE != 0:
                dc = scatter_columns(dc, select)
            if VALID:
                dc = tl.where(ok[None, :], dc, 0.0)
            if LATE:
                dc += share
            else:
                dc += dh * gate * (1.0 - bent * bent)
                grad = tl.where(mask, dh * moved * (1.0 - gate), 0.0)
                store_gate(gates, dx, grad, slab, PR, unit, n2, N, 2, S, KP, H, HP, BK, G, scale)
            block = load_block(w, wd_, first, 1, H, HP, BK, LATER)
            other = load_block(wt, wtd_, first, 1, H, HP, BK, LATER)
            if LATE:
                parent = n * K + tl.load(anc_ + at1 + row, mask=live, other=0)
                x_1 = input_columns(x1, n2, N, H, unit, E, H, KP)
            held_c = load_columns(cell_ + at1 * H, parent, unit, mask, H)
            dh = product_columns(
                ahead, grad, gates + 2 * H * PR, 1, PR, slab, live, wt, wtd_, first, 2,
                H, HP, BK, PREC, LATER,
            )  # fmt: skip
            gate = product_columns(
                block, h, h_base, H, 1, row, live, w, wd_, first, 1, H, HP, BK, PREC, LATER
            )
            gate = sigmoid(gate + x_1)
            grad = tl.where(mask, dc * held_c * gate * (1.0 - gate), 0.0)
            store_gate(gates, dx, grad, slab, PR, unit, n2, N, 1, S, KP, H, HP, BK, G, scale)
            block = load_block(w, wd_, first, 0, H, HP, BK, LATER)
            ahead = load_block(wt, wtd_, first, 0, H, HP, BK, LATER)
            raw = load_columns(raw_ + (at1 - m * NK) * H, row, unit, mask, H)
            dh += product_columns(
                other, grad, gates + H * PR, 1, PR, slab, live, wt, wtd_, first, 1,
                H, HP, BK, PREC, LATER,
            )  # fmt: skip
            through = dc * gate
            if VALID:
                through = tl.where(ok[None, :], through, held_dc)
            store_columns(dcell_ + carry, through, row, unit, mask, H)
        # The candidate.
        if GRU:
            raw = load_columns(raw_ + (at1 - m * NK) * H, row, unit, mask, H)
        if LATE:
            x_0 = input_columns(x1, n2, N, 0, unit, E, H, KP)
        if NORM:
            if LATE:
                gain = tl.load(gain_ + m * H + unit, mask=unit < H, other=0.0)
                shift = tl.load(shift_ + m * H + unit, mask=unit < H, other=0.0)
                given1 = m * H + before.to(tl.int64) * given_t
                mean1, var1 = load_statistics(
                    gmean_ + given1, gvar_ + given1, mean_, var_, (m * T + before) * H,
                    unit, H, GIVEN,
                )  # fmt: skip
            raw = (raw - mean1[:, None]) * tl.rsqrt(var1 + norm_eps)[:, None]
            bn = raw * gain[:, None] + shift[:, None]
        else:
            bn = raw
        new = activate(bn, ACT)
        gate = product_columns(
            block, h, h_base, H, 1, row, live, w, wd_, first, 0, H, HP, BK, PREC, LATER
        )
        gate = sigmoid(gate + x_0)
        if GRU:
            moved = new + gate * (h - new)
            tl.store(dobs_at, dobs + tl.sum(dfit[None, :] * moved, 1))
            grad = tl.where(mask, dh * (h - new) * gate * (1.0 - gate), 0.0)
            dn = dh * (1.0 - gate)
        else:
            grad = tl.where(mask, dc * new * gate * (1.0 - gate), 0.0)
            dn = dc * gate
        store_gate(gates, dx, grad, slab, PR, unit, n2, N, 0, S, KP, H, HP, BK, G, scale)
        if GRU:
            dh *= gate
        dh += product_columns(
            ahead, grad, gates, 1, PR, slab, live, wt, wtd_, first, 0, H, HP, BK, PREC, LATER
        )
        if VALID:
            dh = tl.where(ok[None, :], dh, held)
        store_columns(dhid_ + carry, dh, row, unit, mask, H)
        dn = tl.where(mask, dn * activate_slope(bn, new, ACT), 0.0)
        store_columns(dnorm_ + carry, dn, row, unit, mask, H)
        if NORM:
            part = part_ + ((m * 2 + before % 2) * P + p) * 2 * HP
            tl.store(part + unit, tl.sum(dn, 1))
            tl.store(part + HP + unit, tl.sum(dn * raw, 1))
            if TICKET:
                if comes_last(ticket_ + m, P):
                    parts = part_ + (m * 2 + before % 2) * P * 2 * HP
                    dshift, dgain = total_pair(parts, P, HP, PB, ".cg")
                    sums = sums_ + (m * T + before) * 2 * H
                    tl.store(sums + unit, dshift, mask=unit < H)
                    tl.store(sums + H + unit, dgain, mask=unit < H)
