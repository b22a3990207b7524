"""A linear head inside the kernels: each particle's outputs, and the way back through them.

The head's product reads a tile that a kernel holds in registers anyway, so the hidden states, the
largest tensor of all, need not be read again outside, and their gradient is never in memory: it is
the outputs' gradient (a number a particle and output) times the head's weights. Weights lie as
(M, H, OUT), outputs and their gradient as (..., N, K, OUT); OUT is small and loops over it unroll.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.backward_parts import load_columns

# Sums over particles in which the weights' gradient is left. Of a tile of 64 units, so many
# particles are read side by side: their sums need no exchange between threads, and no barrier.
PARTS = tl.constexpr(8)


@triton.jit
def load_outputs(base, row, mask, c, OUT: tl.constexpr):
    """Load output c of each particle, or of each unit's weights; 0 outside the mask."""
    return tl.load(base + row * OUT + c, mask=mask, other=0.0)


@triton.jit
def store_outputs(y, h, read, row, unit, live, H: tl.constexpr, OUT: tl.constexpr):
    """Store the outputs of a tile [R, HP], particles as rows."""
    for c in tl.static_range(OUT):
        weight = load_outputs(read, unit, unit < H, c, OUT)
        tl.store(y + row * OUT + c, tl.sum(h * weight[None, :], 1), mask=live)


@triton.jit
def outputs_gradient(dh, gy, read, row, live, unit, H: tl.constexpr, OUT: tl.constexpr):
    """Add the outputs' share to the gradient of a tile [HP, R], particles as columns.

    Read here and not before, as the tile itself would be: held any longer, it would spill.
    """
    for c in tl.static_range(OUT):
        weight = load_outputs(read, unit, unit < H, c, OUT)
        dh += load_outputs(gy, row, live, c, OUT)[None, :] * weight[:, None]
    return dh


@triton.jit
def add_weights_gradient(
    total, gy, gy_t, h, end, row, unit, live, mask, t,
    END: tl.constexpr, R: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """Add a tile's share, [HP, R], to the gradient of the weights, [OUT, PARTS, HP] in memory.

    The tile h, from before step t - 1, is what step t - 2 made, if there was one; ``gy`` is of
    t - 1. The very last tile, at ``end``, is before no step: the first launch reads it beside.
    """
    # A vector, for the interpreter: what it makes of a number and a mask is no mask.
    when = row * 0 + t
    at = total + tl.arange(0, PARTS)[None, :] * HP + unit[:, None]
    if END:
        after = load_columns(end, row, unit, mask, H)
    for c in tl.static_range(OUT):
        share = load_outputs(gy - gy_t, row, live & (when > 1), c, OUT)[None, :] * h
        if END:
            share += load_outputs(gy, row, live, c, OUT)[None, :] * after
        share = tl.sum(tl.reshape(share, [HP, R // PARTS, PARTS]), 1)
        tl.store(at + c * PARTS * HP, tl.load(at + c * PARTS * HP) + share)
