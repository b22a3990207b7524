"""Kernels of a population's products with stacked weights, and of their gradients.

A program owns BR rows of one member, a row being one sequence at one time, and takes the columns
in pieces of BE and a last one of TAIL (0: none): of 321 columns one is left over, which a full
piece would compute 63 more for.

Results and their gradients g lie members first, (M, T, N, E). x and its gradient lie apart by whole
rows: row (t, n) of member m is at (t * t_rows + m * m_rows + n) * D, so that a population's memory
may begin with time or with members, and Triton still sees which rows are aligned. Offsets are 64
bits wide.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.tiles import matmul


@triton.jit
def wide(WIDTH: tl.constexpr):
    """0 to WIDTH - 1 in 64 bits: offsets made of it differ by constants and take no registers."""
    return tl.arange(0, WIDTH).to(tl.int64)


@triton.jit
def places(r, N, t_rows, m_rows, m):
    """Where rows r of member m lie, in rows: [BR] int64."""
    return (r // N).to(tl.int64) * t_rows + m * m_rows + r % N


@triton.jit
def load_columns(base, place, live, first, E: tl.constexpr, WIDTH: tl.constexpr):
    """Load columns [first, first + WIDTH) of rows; 0 past the last row and column."""
    inside = live[:, None] & (first + tl.arange(0, WIDTH) < E)[None, :]
    at = base + first + place[:, None] * E + wide(WIDTH)[None, :]
    return tl.load(at, mask=inside, other=0.0)


@triton.jit
def load_weight(w, first, D: tl.constexpr, DP: tl.constexpr, E: tl.constexpr, WIDTH: tl.constexpr):
    """Load columns [first, first + WIDTH) of a member's weight: [DP, WIDTH]."""
    return load_columns(w, wide(DP), tl.arange(0, DP) < D, first, E, WIDTH)


@triton.jit
def store_product(
    x, w, bias, out, live, first, D: tl.constexpr, DP: tl.constexpr, E: tl.constexpr,
    BR: tl.constexpr, WIDTH: tl.constexpr, BIAS: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Store columns [first, first + WIDTH) of x @ w + bias."""
    e = first + tl.arange(0, WIDTH)
    value = matmul(x, load_weight(w, first, D, DP, E, WIDTH), PREC)
    if BIAS:
        value += tl.load(bias + e, mask=e < E, other=0.0)[None, :]
    at = out + first + wide(BR)[:, None] * E + wide(WIDTH)[None, :]
    tl.store(at, value, mask=live[:, None] & (e < E)[None, :])


# What differs between batches and populations isn't compiled for (see forward.py).
@triton.jit(do_not_specialize=["rows", "N", "x_t", "x_m"])
def product_kernel(
    x_, w_, bias_, out_, x_t, x_m, rows, N,
    D: tl.constexpr, DP: tl.constexpr, E: tl.constexpr, BR: tl.constexpr, BE: tl.constexpr,
    TAIL: tl.constexpr, BIAS: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Store x @ w + bias to out; grid (rows / BR, M)."""
    m = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * BR
    r = start + tl.arange(0, BR)
    live = r < rows
    x = load_columns(x_, places(r, N, x_t, x_m, m), live, 0, D, DP)
    w, out = w_ + m * D * E, out_ + (m * rows + start) * E
    if BIAS:
        bias = bias_ + m * E
    else:
        bias = bias_
    if TAIL > 0:
        store_product(x, w, bias, out, live, E // BE * BE, D, DP, E, BR, TAIL, BIAS, PREC)
    for piece in range(E // BE):
        store_product(x, w, bias, out, live, piece * BE, D, DP, E, BR, BE, BIAS, PREC)


@triton.jit
def through(
    g, w, live, first, D: tl.constexpr, DP: tl.constexpr, E: tl.constexpr, BR: tl.constexpr,
    WIDTH: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Take columns [first, first + WIDTH) of g through their weights: [BR, DP]."""
    part = load_columns(g, wide(BR), live, first, E, WIDTH)
    return matmul(part, tl.trans(load_weight(w, first, D, DP, E, WIDTH)), PREC)


@triton.jit(do_not_specialize=["rows", "N", "d_t", "d_m"])
def input_gradient_kernel(
    g_, w_, dx_, d_t, d_m, rows, N,
    D: tl.constexpr, DP: tl.constexpr, E: tl.constexpr, BR: tl.constexpr, BE: tl.constexpr,
    TAIL: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Store g @ w^T to dx, the columns' pieces added first to last; grid (rows / BR, M)."""
    m = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * BR
    r = start + tl.arange(0, BR)
    live = r < rows
    w, g_ = w_ + m * D * E, g_ + (m * rows + start) * E
    acc = tl.zeros([BR, DP], tl.float32)
    if TAIL > 0:
        acc += through(g_, w, live, E // BE * BE, D, DP, E, BR, TAIL, PREC)
    for piece in range(E // BE):
        acc += through(g_, w, live, piece * BE, D, DP, E, BR, BE, PREC)
    at = dx_ + places(r, N, d_t, d_m, m)[:, None] * D + wide(DP)[None, :]
    tl.store(at, acc, mask=live[:, None] & (tl.arange(0, DP) < D)[None, :])


@triton.jit
def add_share(
    x_, g_, part, x_t, x_m, m, share, SHARES, rows, N, first,
    D: tl.constexpr, DP: tl.constexpr, E: tl.constexpr, BR: tl.constexpr, WIDTH: tl.constexpr,
    PREC: tl.constexpr,
):  # fmt: skip
    """Sum x^T g, and g below it, over every SHARES-th block of rows; columns from ``first`` on."""
    acc = tl.zeros([DP, WIDTH], tl.float32)
    total = tl.zeros([BR, WIDTH], tl.float32)
    for block in range(share, tl.cdiv(rows, BR), SHARES):
        r = block * BR + tl.arange(0, BR)
        live = r < rows
        g = load_columns(g_ + (m * rows + block * BR) * E, wide(BR), live, first, E, WIDTH)
        x = load_columns(x_, places(r, N, x_t, x_m, m), live, 0, D, DP)
        acc += matmul(tl.trans(x), g, PREC)
        # Rows apart until the end: their sum would have the threads wait for each other.
        total += g
    e = first + tl.arange(0, WIDTH)
    at = part + first + wide(DP)[:, None] * E + wide(WIDTH)[None, :]
    tl.store(at, acc, mask=(tl.arange(0, DP) < D)[:, None] & (e < E)[None, :])
    tl.store(part + D * E + e, tl.sum(total, 0), mask=e < E)


@triton.jit(do_not_specialize=["x_t", "x_m", "SHARES", "rows", "N"])
def parameter_gradient_kernel(
    x_, g_, parts_, x_t, x_m, SHARES, rows, N,
    D: tl.constexpr, DP: tl.constexpr, E: tl.constexpr, BR: tl.constexpr, BE: tl.constexpr,
    TAIL: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Shares of the weight's gradient and, below each, of the bias's: (M, SHARES, D + 1, E).

    Grid (pieces SHARES, M): a share's pieces lie side by side and find its rows in the cache.
    """
    FULL: tl.constexpr = E // BE
    PIECES: tl.constexpr = FULL + (1 if TAIL > 0 else 0)
    m = tl.program_id(1).to(tl.int64)
    piece, share = tl.program_id(0) % PIECES, tl.program_id(0) // PIECES
    part = parts_ + (m * SHARES + share) * (D + 1) * E
    if FULL > 0:
        if piece < FULL:
            add_share(
                x_, g_, part, x_t, x_m, m, share, SHARES, rows, N, piece * BE,
                D, DP, E, BR, BE, PREC,
            )  # fmt: skip
    if TAIL > 0:
        if piece == FULL:
            add_share(
                x_, g_, part, x_t, x_m, m, share, SHARES, rows, N, FULL * BE,
                D, DP, E, BR, TAIL, PREC,
            )  # fmt: skip
