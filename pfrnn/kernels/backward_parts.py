"""Pieces of the backward kernel: tiles held as columns, gate gradients, resampling.

Here a tile is [HP, R], a column a particle. Units are then the rows of a product, 64 of them as
warp group instructions want, whose factors stay in shared memory: with particles as rows, 32 a
sequence, older instructions would hold both factors in registers. Sums over a sequence's particles
stay within a warp.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.elementary import sigmoid
from pfrnn.kernels.philox import normal_tile
from pfrnn.kernels.tiles import collect, matmul, mixture, total_pair


@triton.jit
def load_columns(base, row, unit, mask, STRIDE: tl.constexpr):
    """Load [HP, R] from rows of a matrix; 0 outside the mask."""
    return tl.load(base + row[None, :] * STRIDE + unit[:, None], mask=mask, other=0.0)


@triton.jit
def store_columns(base, value, row, unit, mask, STRIDE: tl.constexpr):
    """Store [HP, R] to rows of a matrix."""
    tl.store(base + row[None, :] * STRIDE + unit[:, None], value, mask=mask)


@triton.jit
def input_columns(base, n2, N, column, unit, E: tl.constexpr, H: tl.constexpr, KP: tl.constexpr):
    """Load a block of the projected input, [HP, S], and repeat it over the particles: [HP, R]."""
    at = base + n2[None, :] * E + (column + unit)[:, None]
    x = tl.load(at, mask=(unit < H)[:, None] & (n2 < N)[None, :], other=0.0)
    HP: tl.constexpr = x.shape[0]
    S: tl.constexpr = x.shape[1]
    return tl.reshape(tl.broadcast_to(x[:, :, None], [HP, S, KP]), [HP, S * KP])


@triton.jit
def noise_columns(
    base, seed_, step_, t, row, unit, mask, NOISE: tl.constexpr, H: tl.constexpr, HP: tl.constexpr
):
    """Noise of a step, [HP, R]: given, or drawn for the seed and step that lie in memory."""
    if NOISE == 1:
        return load_columns(base, row, unit, mask, H)
    else:
        drawn = normal_tile(tl.load(seed_), tl.load(step_), t, row, H, HP)
        return tl.where(mask, tl.trans(drawn), 0.0)


@triton.jit
def load_block(
    w, desc, first, g: tl.constexpr,
    H: tl.constexpr, HP: tl.constexpr, BK: tl.constexpr, FETCH: tl.constexpr,
):  # fmt: skip
    """Load a member's weight block g ahead of its product; nothing where that reads it in pieces.

    ``w`` points to the member's first block, which ``desc`` calls ``first``
    (:mod:`pfrnn.kernels.fetch`). FETCH 1 fetches the block, 2 leaves that to the product.
    """
    if FETCH == 1:
        return desc.load([(first + g) * H, 0])
    elif FETCH == 2:
        return 0
    elif HP <= BK:
        n = tl.arange(0, HP)
        k = tl.arange(0, HP)
        inside = (n < H)[:, None] & (k < H)[None, :]
        return tl.load(w + g * H * H + n[:, None] * H + k[None, :], mask=inside, other=0.0)
    else:
        return 0


@triton.jit
def product_columns(
    block, x, x_base, x_row, x_unit, row, live, w, desc, first, g: tl.constexpr,
    H: tl.constexpr, HP: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr, FETCH: tl.constexpr,
):  # fmt: skip
    """Multiply a weight block by a tile: out[n, r] = sum_k w[n * H + k] x[k, r].

    x is [HP, R]; otherwise as :func:`pfrnn.kernels.tiles.product`.
    """
    n = tl.arange(0, HP)
    if FETCH == 2:
        return matmul(desc.load([(first + g) * H, 0]), x, PREC)
    elif HP <= BK:
        return matmul(block, x, PREC)
    else:
        out = tl.zeros([HP, row.shape[0]], tl.float32)
        for k0 in range(0, HP, BK):
            k = k0 + tl.arange(0, BK)
            at = x_base + row[None, :] * x_row + k[:, None] * x_unit
            part = tl.load(at, mask=(k < H)[:, None] & live[None, :], other=0.0).to(tl.float32)
            inside = (n < H)[:, None] & (k < H)[None, :]
            # Not called block: a name keeps its type within a loop.
            piece = tl.load(w + g * H * H + n[:, None] * H + k[None, :], mask=inside, other=0.0)
            out += matmul(piece, part, PREC)
        return out


@triton.jit
def scale_slope(
    w, desc, first, g: tl.constexpr, h_base, row, unit, live, mask, x, n2, N, E: tl.constexpr,
    H: tl.constexpr, HP: tl.constexpr, KP: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr,
    FETCH: tl.constexpr,
):  # fmt: skip
    """Derivative of the noise's softplus scale, [HP, R], computed again from the particles."""
    h = load_columns(h_base, row, unit, mask, H)
    scale = load_block(w, desc, first, g, H, HP, BK, FETCH)
    scale = product_columns(
        scale, h, h_base, H, 1, row, live, w, desc, first, g, H, HP, BK, PREC, FETCH
    )
    return sigmoid(scale + input_columns(x, n2, N, g * H, unit, E, H, KP))


@triton.jit
def scatter_columns(x, select):
    """Multiply x by a matrix of zeros and ones, exact to 2^-22: x split into two tf32 terms."""
    high = (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    out = tl.dot(high, select, input_precision="tf32")
    return tl.dot(x - high, select, out, input_precision="tf32")


@triton.jit
def store_gate(
    gates, dx, grad, slab, PR, unit, n2, N, g,
    S: tl.constexpr, KP: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, BK: tl.constexpr,
    G: tl.constexpr, scale,
):  # fmt: skip
    """Store a gate's gradient and its sum over each sequence's particles (the input's share).

    A product may follow that reads it in pieces. As float16 it is kept in units of 1 / ``scale``,
    and what exceeds the type is its largest number.
    """
    if gates.dtype.element_ty == tl.float16:
        scaled = tl.clamp(grad * scale, -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
        store_slab(gates + g * H * PR, scaled, slab, PR, unit, H)
    else:
        store_slab(gates + g * H * PR, grad, slab, PR, unit, H)
    total = tl.sum(tl.reshape(grad, [HP, S, KP]), 2)
    at = dx + n2[None, :] * (G * H + 1) + (g * H + unit)[:, None]
    tl.store(at, total, mask=(unit < H)[:, None] & (n2 < N)[None, :])
    if HP > BK:
        tl.debug_barrier()


@triton.jit
def store_slab(base, tile, slab, PR, unit, H: tl.constexpr):
    """Store [HP, R] unit by unit (padding columns too: they hold zeros)."""
    tl.store(base + unit[:, None] * PR + slab[None, :], tile, mask=(unit < H)[:, None])


@triton.jit
def load_statistics(
    given_mean, given_var, mean, var, at, unit, H: tl.constexpr, GIVEN: tl.constexpr
):
    """Load a step's batch-norm statistics, [HP] each: given ones, or those measured."""
    if GIVEN:
        return (
            tl.load(given_mean + unit, mask=unit < H, other=0.0),
            tl.load(given_var + unit, mask=unit < H, other=1.0),
        )
    else:
        return (
            tl.load(mean + at + unit, mask=unit < H, other=0.0),
            tl.load(var + at + unit, mask=unit < H, other=1.0),
        )


@triton.jit
def norm_gradient(
    dn, raw, mean, rstd, gain, part, sums, total, p, P, unit,
    H: tl.constexpr, HP: tl.constexpr, PB: tl.constexpr, GIVEN: tl.constexpr,
    TICKET: tl.constexpr,
):  # fmt: skip
    """Gradient of the candidate, given that of its batch norm's output.

    The sums are stored, or where TICKET read: the launch before this one stored them.
    """
    if TICKET:
        dshift = tl.load(sums + unit, mask=unit < H, other=0.0)
        dgain = tl.load(sums + H + unit, mask=unit < H, other=0.0)
    else:
        dshift, dgain = total_pair(part, P, HP, PB, "")
        if p == 0:
            tl.store(sums + unit, dshift, mask=unit < H)
            tl.store(sums + H + unit, dgain, mask=unit < H)
    if not GIVEN:
        size = 1.0 / tl.load(total)
        normed = (raw - mean[:, None]) * rstd[:, None]
        dn -= dshift[:, None] * size + normed * (dgain * size)[:, None]
    return dn * (gain * rstd)[:, None]


@triton.jit
def resampling_gradient(
    dl, new_lw, lw, anc, inside, live, flag, within, alpha,
    K: tl.constexpr, KP: tl.constexpr, MODE: tl.constexpr, VALID: tl.constexpr,
):  # fmt: skip
    """Gradients of the unnormalised log-weights and of the step's, given the resampled ones'.

    All are [S, KP]; they differ where a sequence's flag says that it sits the step out.
    """
    p, q = mixture(lw, inside, alpha, K, MODE)
    if MODE == 0:
        grad = tl.where(inside, dl, 0.0)
    elif MODE == 1:
        w = tl.where(inside, tl.exp(new_lw), 0.0)
        kept = tl.where(inside, dl, 0.0)
        grad = collect(kept - w * tl.sum(kept, 1)[:, None], anc, KP)
        grad = tl.where(inside, grad * (1.0 - alpha * p / tl.where(inside, q, 1.0)), 0.0)
    else:
        grad = tl.zeros_like(dl)
    grad = tl.where(live, grad - p * tl.sum(grad, 1)[:, None], 0.0)
    if VALID:
        ok = tl.load(flag, mask=within, other=0) != 0
        grad = tl.where(ok[:, None], grad, 0.0)
        return grad, tl.where(ok[:, None], grad, dl)
    else:
        return grad, grad
