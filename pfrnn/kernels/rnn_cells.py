"""Plain LSTM and GRU steps but for their products: gates, batch norm and state in one kernel each.

A plain RNN's step is one product of the hidden state with all gates' weights (a GRU's two), which
the library batches over members well, and a dozen small operations, each a launch of microseconds.
Here these are one launch after each product, forwards and backwards.

A program owns R sequences (all of a member where batch norm sums over them) and BU units of one
member; nothing is shared between programs, and no sum depends on the population. Memory is member
first, so that weights' gradients need no copies: hidden, cell (M, T+1, N, H); blocks (M, T, N,
G H), what the backward pass reads: activated gates, and the candidate after its activation, or
before its batch norm where there is one. A step's product (M, N, G H) lies elsewhere: threads may
hold copies of a small tile, and one must not store what another has yet to read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.elementary import sigmoid, tanh
from pfrnn.kernels.tiles import activate, activate_slope


@triton.jit
def places(N, H: tl.constexpr, R: tl.constexpr, BU: tl.constexpr):
    """Return a program's member, sequences, units and mask, [R, BU]."""
    m = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * R + tl.arange(0, R)
    unit = tl.program_id(1) * BU + tl.arange(0, BU)
    return m, row, unit, (row < N)[:, None] & (unit < H)[None, :]


@triton.jit
def load(base, row, unit, mask, STRIDE: tl.constexpr):
    """Load [R, BU] from rows of a matrix; 0 outside the mask."""
    return tl.load(base + row[:, None] * STRIDE + unit[None, :], mask=mask, other=0.0)


@triton.jit
def store(base, value, row, unit, mask, STRIDE: tl.constexpr):
    """Store [R, BU] to rows of a matrix."""
    tl.store(base + row[:, None] * STRIDE + unit[None, :], value, mask=mask)


@triton.jit
def valid_rows(valid_, valid_t, valid_m, m, t, row, N, VALID: tl.constexpr):
    """Which sequences take part in a step, [R] bool."""
    if VALID:
        at = valid_ + t * valid_t + m * valid_m
        return tl.load(at + row, mask=row < N, other=0) != 0
    else:
        return row < N


@triton.jit
def normalise(
    raw, counted, size, mean_, var_, gain_, shift_, unit, eps, H: tl.constexpr,
    MEASURE: tl.constexpr,
):  # fmt: skip
    """Batch norm over a program's sequences: output, normalised value, gain / deviation.

    Statistics are measured and stored, or read.
    """
    inside = unit < H
    if not MEASURE:
        mean = tl.load(mean_ + unit, mask=inside, other=0.0)
        var = tl.load(var_ + unit, mask=inside, other=1.0)
    else:
        mean = tl.sum(tl.where(counted, raw, 0.0), 0) / size
        gap = tl.where(counted, raw - mean[None, :], 0.0)
        var = tl.sum(gap * gap, 0) / size
        tl.store(mean_ + unit, mean, mask=inside)
        tl.store(var_ + unit, var, mask=inside)
    rstd = tl.rsqrt(var + eps)
    gain = tl.load(gain_ + unit, mask=inside, other=0.0)
    shift = tl.load(shift_ + unit, mask=inside, other=0.0)
    normed = (raw - mean[None, :]) * rstd[None, :]
    return normed * gain[None, :] + shift[None, :], normed, rstd * gain


@triton.jit
def candidate_of(
    raw, ok, row, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_, eps, H: tl.constexpr,
    ACT: tl.constexpr, NORM: tl.constexpr, GIVEN: tl.constexpr,
):  # fmt: skip
    """Batch norm and activation of a candidate, [R, BU]."""
    if NORM:
        counted = mask & ok[:, None]
        size = tl.maximum(tl.sum(ok.to(tl.float32), 0), 1.0)
        at = m * H + t * given_t if GIVEN else (m * T + t) * H
        raw, _, _ = normalise(
            raw, counted, size, mean_ + at, var_ + at, gain_ + m * H, shift_ + m * H,
            unit, eps, H, not GIVEN,
        )  # fmt: skip
    return activate(raw, ACT)


@triton.jit
def candidate_gradient(
    grad, kept, ok, row, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_, dgain_, dshift_,
    eps, H: tl.constexpr, ACT: tl.constexpr, NORM: tl.constexpr, GIVEN: tl.constexpr,
):  # fmt: skip
    """Gradient before batch norm and activation, given the candidate's; the candidate too.

    ``kept`` is what :func:`candidate_of` was given with batch norm, else what it returned. Rows
    that sit the step out have a gradient of 0.
    """
    if NORM:
        counted = mask & ok[:, None]
        size = tl.maximum(tl.sum(ok.to(tl.float32), 0), 1.0)
        at = m * H + t * given_t if GIVEN else (m * T + t) * H
        value, normed, scale = normalise(
            kept, counted, size, mean_ + at, var_ + at, gain_ + m * H, shift_ + m * H,
            unit, eps, H, False,
        )  # fmt: skip
        candidate = activate(value, ACT)
        grad = tl.where(counted, grad * activate_slope(value, candidate, ACT), 0.0)
        dshift, dgain = tl.sum(grad, 0), tl.sum(grad * normed, 0)
        # A program of all sequences writes its sums whole; several keep theirs apart.
        part = ((m * T + t) * tl.num_programs(0) + tl.program_id(0)) * H
        tl.store(dshift_ + part + unit, dshift, mask=unit < H)
        tl.store(dgain_ + part + unit, dgain, mask=unit < H)
        if not GIVEN:
            grad -= (dshift[None, :] + normed * dgain[None, :]) / size
        return tl.where(counted, grad * scale[None, :], 0.0), candidate
    else:
        # The slope of all three activations follows from the value.
        return tl.where(mask & ok[:, None], grad * activate_slope(kept, kept, ACT), 0.0), kept


_PLAIN = ["t", "T", "N", "x_t", "x_m", "valid_t", "valid_m", "given_t"]


@triton.jit(do_not_specialize=_PLAIN)
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
    gate_in = load(product, row, unit, mask, G) + load(x, row, unit, mask, G)
    forget = load(product + H, row, unit, mask, G) + load(x + H, row, unit, mask, G)
    raw = load(product + 2 * H, row, unit, mask, G) + load(x + 2 * H, row, unit, mask, G)
    out = load(product + 3 * H, row, unit, mask, G) + load(x + 3 * H, row, unit, mask, G)
    c = load(cell_ + here, row, unit, mask, H)
    gate_in, forget, out = sigmoid(gate_in), sigmoid(forget), sigmoid(out)
    candidate = candidate_of(
        raw, ok, row, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_, eps,
        H, ACT, NORM, GIVEN,
    )  # fmt: skip
    cell = forget * c + gate_in * candidate
    hidden = out * tanh(cell)
    store(blocks, gate_in, row, unit, mask, G)
    store(blocks + H, forget, row, unit, mask, G)
    store(blocks + 2 * H, raw if NORM else candidate, row, unit, mask, G)
    store(blocks + 3 * H, out, row, unit, mask, G)
    if VALID:
        cell = tl.where(ok[:, None], cell, c)
        hidden = tl.where(ok[:, None], hidden, load(hidden_ + here, row, unit, mask, H))
    store(cell_ + here + N * H, cell, row, unit, mask, H)
    store(hidden_ + here + N * H, hidden, row, unit, mask, H)


@triton.jit(do_not_specialize=[*_PLAIN, "gh_t", "gh_m"])
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
    dh = load(gh_ + t * gh_t + m * gh_m, row, unit, mask, H)
    dc = tl.zeros([R, BU], tl.float32)
    if not CUT:
        dh += load(dh_ + carry, row, unit, mask, H)
        dc += load(dc_ + carry, row, unit, mask, H)
    gate_in, forget = load(blocks, row, unit, mask, G), load(blocks + H, row, unit, mask, G)
    kept, out = load(blocks + 2 * H, row, unit, mask, G), load(blocks + 3 * H, row, unit, mask, G)
    c = load(cell_ + here, row, unit, mask, H)
    bent = tanh(load(cell_ + here + N * H, row, unit, mask, H))
    moving = mask & ok[:, None]
    dcell = dc + dh * out * (1.0 - bent * bent)
    dn, candidate = candidate_gradient(
        dcell * gate_in, kept, ok, row, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_,
        dgain_, dshift_, eps, H, ACT, NORM, GIVEN,
    )  # fmt: skip
    di = tl.where(moving, dcell * candidate * gate_in * (1.0 - gate_in), 0.0)
    df = tl.where(moving, dcell * c * forget * (1.0 - forget), 0.0)
    do = tl.where(moving, dh * bent * out * (1.0 - out), 0.0)
    store(dblocks, di, row, unit, mask, G)
    store(dblocks + H, df, row, unit, mask, G)
    store(dblocks + 2 * H, dn, row, unit, mask, G)
    store(dblocks + 3 * H, do, row, unit, mask, G)
    dcell *= forget
    if VALID:
        dcell = tl.where(ok[:, None], dcell, dc)
        store(held_ + carry, tl.where(ok[:, None], 0.0, dh), row, unit, mask, H)
    store(dc_out_ + carry, dcell, row, unit, mask, H)


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
    reset = load(product, row, unit, mask, G) + load(x, row, unit, mask, 3 * H)
    update = load(product + H, row, unit, mask, G) + load(x + H, row, unit, mask, 3 * H)
    h = load(hidden_ + (m * (T + 1) + t) * N * H, row, unit, mask, H)
    reset = sigmoid(reset)
    store(blocks, reset, row, unit, mask, G)
    store(blocks + H, sigmoid(update), row, unit, mask, G)
    store(inner_ + (m * T + t) * N * H, reset * h, row, unit, mask, H)


@triton.jit(do_not_specialize=_PLAIN)
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
    raw = load(product_ + m * N * H, row, unit, mask, H) + load(x, row, unit, mask, 3 * H)
    update = load(blocks_ + 2 * at + H, row, unit, mask, 2 * H)
    h = load(hidden_ + here, row, unit, mask, H)
    candidate = candidate_of(
        raw, ok, row, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_, eps,
        H, ACT, NORM, GIVEN,
    )  # fmt: skip
    store(raw_ + at, raw if NORM else candidate, row, unit, mask, H)
    new = candidate + update * (h - candidate)
    if VALID:
        new = tl.where(ok[:, None], new, h)
    store(hidden_ + here + N * H, new, row, unit, mask, H)


@triton.jit(do_not_specialize=[*_PLAIN, "gh_t", "gh_m"])
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
    dh = load(gh_ + t * gh_t + m * gh_m, row, unit, mask, H)
    if not CUT:
        dh += load(dh_ + carry, row, unit, mask, H)
    update = load(blocks_ + 2 * at + H, row, unit, mask, 2 * H)
    kept, h = load(raw_ + at, row, unit, mask, H), load(hidden_ + here, row, unit, mask, H)
    dn, candidate = candidate_gradient(
        dh * (1.0 - update), kept, ok, row, unit, mask, m, t, T, mean_, var_, given_t, gain_,
        shift_, dgain_, dshift_, eps, H, ACT, NORM, GIVEN,
    )  # fmt: skip
    dz = dh * (h - candidate) * update * (1.0 - update)
    held = dh * update
    if VALID:
        dz = tl.where(ok[:, None], dz, 0.0)
        held = tl.where(ok[:, None], held, dh)
    store(dblocks + H, dz, row, unit, mask, 3 * H)
    store(dblocks + 2 * H, dn, row, unit, mask, 3 * H)
    store(held_ + carry, held, row, unit, mask, H)


@triton.jit(do_not_specialize=["t", "T", "N"])
def gru_reset_backward(
    blocks_, hidden_, dinner_, held_, out_, dblocks_, t, T, N, H: tl.constexpr, R: tl.constexpr,
    BU: tl.constexpr,
):  # fmt: skip
    """The reset gate's gradient, given that of r h, (M, N, H), and the hidden state's share."""
    m, row, unit, mask = places(N, H, R, BU)
    t = t.to(tl.int64)  # offsets of long sequences pass 2^31
    here, at, carry = (m * (T + 1) + t) * N * H, (m * T + t) * N * H, m * N * H
    dinner = load(dinner_ + carry, row, unit, mask, H)
    reset = load(blocks_ + 2 * at, row, unit, mask, 2 * H)
    h = load(hidden_ + here, row, unit, mask, H)
    dr = dinner * h * reset * (1.0 - reset)
    store(dblocks_ + 3 * at, dr, row, unit, mask, 3 * H)
    held = load(held_ + carry, row, unit, mask, H) + dinner * reset
    store(out_ + carry, held, row, unit, mask, H)
