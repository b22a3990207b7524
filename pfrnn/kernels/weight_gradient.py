"""Gradient of the recurrent weights: sum over time, sequences and particles of h' d(gate).

Each program owns one block (gate, tile) of one member and a fixed share of the rows; it adds a few
time steps to its partial sum in memory. Shares and order are the same for every population, so the
sums have the same bits whoever shares the block.

The backward kernel stores ``gates`` (M, slots, G H, P R), a ring over time, unit by unit with the
programs' rows side by side (padding rows are zero), and ``inner`` (M, slots, 1 or 2, H, P R): h,
and r * h of the GRU. Tensor cores read float32 factors along the summed axis, hence this order. As
float16 the gates' gradients are in units of ``unit`` (M).
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.tiles import matmul


@triton.jit(do_not_specialize=["first", "steps", "SLOTS"])
def weight_gradient_kernel(
    inner_, gates_, out_, unit_, first, steps, SLOTS, PR,
    GRU: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr,
    BR: tl.constexpr, SHARES: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Add steps [first, first + steps) to out (M, SHARES, G, H, H); grid (tiles G SHARES, M)."""
    G: tl.constexpr = 4 if GRU else 5
    INNER: tl.constexpr = 2 if GRU else 1
    TO: tl.constexpr = HP // BO
    m = tl.program_id(1).to(tl.int64)
    pid = tl.program_id(0)
    g = pid % G
    share = (pid // G) % SHARES
    tile = pid // (SHARES * G)
    i = (tile // TO) * BI + tl.arange(0, BI)
    o = (tile % TO) * BO + tl.arange(0, BO)
    blocks = tl.cdiv(PR, BR)
    at = out_ + ((m * SHARES + share) * G + g) * H * H + i[:, None] * H + o[None, :]
    mask = (i < H)[:, None] & (o < H)[None, :]
    # The GRU's candidate multiplies r * h, all others h.
    offset = 0
    if GRU:
        offset = tl.where(g == 2, H, 0)
    inner = inner_ + m * SLOTS * INNER * H * PR + offset * PR
    gates = gates_ + m * SLOTS * G * H * PR + g * H * PR
    HALF: tl.constexpr = gates_.dtype.element_ty == tl.float16
    if HALF:
        acc = tl.zeros([BI, BO], tl.float32)
    else:
        acc = tl.load(at, mask=mask, other=0.0)
    for j in range(share, steps * blocks, SHARES):
        slot = ((first + j // blocks) % SLOTS).to(tl.int64)
        r = (j % blocks) * BR + tl.arange(0, BR)
        left = inner + slot * INNER * H * PR + i[:, None] * PR + r[None, :]
        right = gates + slot * G * H * PR + o[None, :] * PR + r[:, None]
        a = tl.load(left, mask=(i < H)[:, None] & (r < PR)[None, :], other=0.0)
        b = tl.load(right, mask=(r < PR)[:, None] & (o < H)[None, :], other=0.0)
        if HALF:
            acc += tl.dot(a, b)
        else:
            acc += matmul(a, b, PREC)
    if HALF:
        # A power of two: exact.
        acc = tl.load(at, mask=mask, other=0.0) + acc * tl.load(unit_ + m)
    tl.store(at, acc, mask=mask)
