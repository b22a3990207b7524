"""Pieces of the backward kernel: storing gate gradients, the gradient of resampling."""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.tiles import collect, mixture


@triton.jit
def store_gate(
    gates, dx, grad, slab, PR, unit, n2, N, g,
    S: tl.constexpr, KP: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """Store a gate's gradient and its sum over each sequence's particles (the input's share)."""
    store_slab(gates + g * H * PR, grad, slab, PR, unit, H)
    total = tl.sum(tl.reshape(grad, [S, KP, HP]), 1)
    at = dx + n2[:, None] * (G * H + 1) + (g * H + unit)[None, :]
    tl.store(at, total, mask=(n2 < N)[:, None] & (unit < H)[None, :])


@triton.jit
def store_slab(base, tile, slab, PR, unit, H: tl.constexpr):
    """Store [R, HP] unit by unit (padding rows too: they hold zeros)."""
    tl.store(base + unit[None, :] * PR + slab[:, None], tile, mask=(unit < H)[None, :])


@triton.jit
def resampling_gradient(dl, new_lw, lw, anc, inside, alpha, K: tl.constexpr, KP: tl.constexpr,
                        MODE: tl.constexpr):  # fmt: skip
    """Gradient of the unnormalised log-weights, given that of the resampled ones; all [S, KP]."""
    p, q = mixture(lw, inside, alpha, K, MODE)
    if MODE == 0:
        grad = tl.where(inside, dl, 0.0)
    elif MODE == 1:
        w = tl.where(inside, tl.exp(new_lw), 0.0)
        dl = tl.where(inside, dl, 0.0)
        grad = collect(dl - w * tl.sum(dl, 1)[:, None], anc, KP)
        grad = tl.where(inside, grad * (1.0 - alpha * p / tl.where(inside, q, 1.0)), 0.0)
    else:
        grad = tl.zeros_like(dl)
    return grad - p * tl.sum(grad, 1)[:, None]
