"""A regression filter's two losses in two kernels, and their gradients in one.

Squared error of the mean of the particles' guesses, and the ELBO of the particles (the paper's
equations; :mod:`pfrnn.functional.losses` is the definition). Every sum's order follows from a
member's own sizes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pfrnn.functional.first_order import first_order
from pfrnn.kernels.plan import inner_contiguous, power_of_two

# Values of a tile, rows times padded particles.
_TILE = 1024
# Rows of a member that make one more program, and the most programs of a member.
_SHARE, _MOST = 256, 64
# Steps and sequences that are looked at at a time where sequences with an output are counted.
_STEPS, _SEQUENCES = 32, 64
MAX_OUTPUTS, MAX_PARTICLES = 4, 256


@triton.jit
def squared_distance(g, y, live, C: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """Squared distance of every particle's guess from its row's target: [ROWS, KP]."""
    k = tl.arange(0, KP)
    inside = live[:, None] & (k < K)[None, :]
    total = tl.zeros([live.shape[0], KP], tl.float32)
    for c in tl.static_range(C):
        guess = tl.load(g[:, None] + k[None, :] * C + c, mask=inside, other=0.0)
        error = guess - tl.load(y + c, mask=live, other=0.0)[:, None]
        total += tl.where(inside, error * error, 0.0)
    return total


@triton.jit
def row_of(r, N, t_step, m_step, n_step, m):
    """Where row r = (t, n) of member m begins."""
    return (r // N).to(tl.int64) * t_step + m * m_step + (r % N).to(tl.int64) * n_step


# What differs between batches and populations isn't compiled for (see forward.py).
@triton.jit(do_not_specialize=[
    "g_t", "g_m", "lw_t", "lw_m", "y_t", "y_m", "y_n", "mask_t", "mask_m", "mask_n", "rows", "N",
    "SHARES", "weight", "beta", "log_count",
])  # fmt: skip
def loss_kernel(
    g_, lw_, y_, mask_, parts_, g_t, g_m, lw_t, lw_m, y_t, y_m, y_n, mask_t, mask_m, mask_n,
    rows, N, SHARES, weight, beta, log_count, K: tl.constexpr, KP: tl.constexpr, C: tl.constexpr,
    ROWS: tl.constexpr, MASKED: tl.constexpr, PREDICTION: tl.constexpr, ELBO: tl.constexpr,
):  # fmt: skip
    """Sum the losses of every SHARES-th block of rows to parts (M, SHARES); grid (SHARES, M)."""
    share, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k = tl.arange(0, KP)
    total = tl.zeros([ROWS], tl.float32)
    for block in range(share, tl.cdiv(rows, ROWS), SHARES):
        r = block * ROWS + tl.arange(0, ROWS)
        live = r < rows
        if MASKED:
            place = row_of(r, N, mask_t, mask_m, mask_n, m)
            live &= tl.load(mask_ + place, mask=live, other=0) != 0
        g = g_ + row_of(r, N, g_t, g_m, K * C, m)
        y = y_ + row_of(r, N, y_t, y_m, y_n, m)
        inside = live[:, None] & (k < K)[None, :]
        loss = tl.zeros([ROWS], tl.float32)
        if PREDICTION:
            lw = lw_ + row_of(r, N, lw_t, lw_m, K, m)
            w = tl.exp(tl.load(lw[:, None] + k[None, :], mask=inside, other=float("-inf")))
            for c in tl.static_range(C):
                guess = tl.load(g[:, None] + k[None, :] * C + c, mask=inside, other=0.0)
                error = tl.sum(w * guess, 1) - tl.load(y + c, mask=live, other=0.0)
                loss += error * error
            loss = weight / C * loss
        if ELBO:
            distance = tl.sqrt_rn(squared_distance(g, y, live, C, K, KP))
            nearest = tl.min(tl.where((k < K)[None, :], distance, float("inf")), 1)
            near = tl.where((k < K)[None, :], tl.exp(nearest[:, None] - distance), 0.0)
            loss += beta * (log_count + nearest - tl.log(tl.sum(near, 1)))
        total += tl.where(live, loss, 0.0)
    tl.store(parts_ + m * SHARES + share, tl.sum(total, 0))


@triton.jit(do_not_specialize=["mask_t", "mask_m", "mask_n", "T", "N", "SHARES"])
def mean_loss_kernel(
    parts_, mask_, out_, sequences_, mask_t, mask_m, mask_n, T, N, SHARES,
    MASKED: tl.constexpr, MOST: tl.constexpr, BT: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add a member's shares, over its sequences that have an output (at least 1); grid (M,)."""
    m = tl.program_id(0).to(tl.int64)
    share = tl.arange(0, MOST)
    total = tl.sum(tl.load(parts_ + m * SHARES + share, mask=share < SHARES, other=0.0), 0)
    sequences = N.to(tl.float32)
    if MASKED:
        count = tl.zeros([BN], tl.int32)
        for first in range(0, N, BN):
            n = first + tl.arange(0, BN)
            seen = tl.zeros([BN], tl.int32)
            for start in range(0, T, BT):
                t = start + tl.arange(0, BT)
                there = (t < T)[:, None] & (n < N)[None, :]
                place = t.to(tl.int64)[:, None] * mask_t + n.to(tl.int64)[None, :] * mask_n
                known = tl.load(mask_ + m * mask_m + place, mask=there, other=0).to(tl.int32)
                seen = tl.maximum(seen, tl.max(known, 0))
            count += (seen != 0).to(tl.int32)
        sequences = tl.maximum(tl.sum(count, 0), 1).to(tl.float32)
    tl.store(sequences_ + m, sequences)
    tl.store(out_ + m, tl.div_rn(total, sequences))


@triton.jit(do_not_specialize=[
    "g_t", "g_m", "lw_t", "lw_m", "y_t", "y_m", "y_n", "mask_t", "mask_m", "mask_n", "dg_t", "dg_m",
    "dlw_t", "dlw_m", "rows", "N", "weight", "beta",
])  # fmt: skip
def loss_gradient_kernel(
    g_, lw_, y_, mask_, grad_, sequences_, dg_, dlw_, g_t, g_m, lw_t, lw_m, y_t, y_m, y_n,
    mask_t, mask_m, mask_n, dg_t, dg_m, dlw_t, dlw_m, rows, N, weight, beta,
    K: tl.constexpr, KP: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr,
    MASKED: tl.constexpr, PREDICTION: tl.constexpr, ELBO: tl.constexpr,
):  # fmt: skip
    """Store gradients of guesses and log-weights, 0 where no output is; grid (blocks, M)."""
    m = tl.program_id(1).to(tl.int64)
    k = tl.arange(0, KP)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    written = (r < rows)[:, None] & (k < K)[None, :]
    live = r < rows
    if MASKED:
        place = row_of(r, N, mask_t, mask_m, mask_n, m)
        live &= tl.load(mask_ + place, mask=live, other=0) != 0
    scale = tl.div_rn(tl.load(grad_ + m), tl.load(sequences_ + m))
    g = g_ + row_of(r, N, g_t, g_m, K * C, m)
    dg = dg_ + row_of(r, N, dg_t, dg_m, K * C, m)
    y = y_ + row_of(r, N, y_t, y_m, y_n, m)
    inside = live[:, None] & (k < K)[None, :]
    pull = tl.zeros([ROWS, KP], tl.float32)
    if ELBO:
        distance = tl.sqrt_rn(squared_distance(g, y, live, C, K, KP))
        nearest = tl.min(tl.where((k < K)[None, :], distance, float("inf")), 1)
        near = tl.where((k < K)[None, :], tl.exp(nearest[:, None] - distance), 0.0)
        share = tl.div_rn(near, tl.sum(near, 1)[:, None])
        # At the target the norm has no gradient; its subgradient 0 is taken.
        apart = tl.where(distance > 0, distance, float("inf"))
        pull = tl.div_rn(beta * scale * share, apart)
    w = tl.zeros([ROWS, KP], tl.float32)
    if PREDICTION:
        lw = lw_ + row_of(r, N, lw_t, lw_m, K, m)
        w = tl.exp(tl.load(lw[:, None] + k[None, :], mask=inside, other=float("-inf")))
    dlw = tl.zeros([ROWS, KP], tl.float32)
    for c in tl.static_range(C):
        guess = tl.load(g[:, None] + k[None, :] * C + c, mask=inside, other=0.0)
        target = tl.load(y + c, mask=live, other=0.0)
        part = pull * (guess - target[:, None])
        if PREDICTION:
            slope = 2.0 / C * weight * scale * (tl.sum(w * guess, 1) - target)
            part += w * slope[:, None]
            dlw += w * guess * slope[:, None]
        value = tl.where(inside, part, 0.0)
        tl.store(dg[:, None] + k[None, :] * C + c, value, mask=written)
    if PREDICTION:
        to = dlw_ + row_of(r, N, dlw_t, dlw_m, K, m)
        tl.store(to[:, None] + k[None, :], tl.where(inside, dlw, 0.0), mask=written)


class Weights(NamedTuple):
    """Of the two losses; 0 leaves one out, whatever its value."""

    prediction: float
    elbo: float


def fits(guesses: Tensor, log_weights: Tensor, target: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernels take these: shapes as :func:`filter_loss`'s, float32, few columns."""
    if guesses.dim() != 5 or min(guesses.shape) == 0:
        return False
    rows, columns = guesses.shape[:3], guesses.shape[4]
    return (
        columns <= MAX_OUTPUTS
        and guesses.shape[3] <= MAX_PARTICLES
        and log_weights.shape == guesses.shape[:4]
        and target.shape == (*rows, columns)
        and (mask is None or (mask.shape == rows and mask.dtype == torch.bool))
        and all(one.dtype == torch.float32 for one in (guesses, log_weights, target))
    )


def filter_loss(
    guesses: Tensor, log_weights: Tensor, target: Tensor, mask: Tensor | None, weights: Weights
) -> Tensor:
    """Sum both losses over time, mean over the sequences that have an output: (M,).

    Args:
        guesses: (T, M, N, K, C), the particles' predictions, C at most 4, K at most 256.
        log_weights: (T, M, N, K), normalised.
        target: (T, M, N, C), of any strides.
        mask: (T, M, N) bool, steps that have an output; None: all.
        weights: of the squared error, a mean over the C coordinates, and of the ELBO, whose
            distance is the norm over them.

    Gradients:
        Of guesses and log-weights; finite also at zero error. Once differentiable.

    Raises:
        ValueError: what the kernels don't take (:func:`fits`).
    """
    if not fits(guesses, log_weights, target, mask):
        given = [tuple(x.shape) for x in (guesses, log_weights, target, mask) if x is not None]
        raise ValueError(
            "expected float32 guesses (T, M, N, K, C), log-weights (T, M, N, K) and targets "
            f"(T, M, N, C), C at most {MAX_OUTPUTS}, and a bool mask (T, M, N), got {given}; use "
            "pfrnn.functional.losses"
        )
    return _Loss.apply(guesses, log_weights, target, mask, weights)


class _Read(NamedTuple):
    """What both passes read."""

    guesses: Tensor
    log_weights: Tensor
    target: Tensor
    mask: Tensor | None

    def pointers(self) -> tuple[Tensor, ...]:
        """As the kernels' arguments; nobody reads a mask that isn't there."""
        g, lw, y, mask = self
        return g, lw, y, y if mask is None else mask.view(torch.uint8)

    def strides(self) -> tuple[int, ...]:
        """Of the axes that the kernels walk, in the order of their arguments."""
        g, lw, y, _ = self
        return (*g.stride()[:2], *lw.stride()[:2], *y.stride()[:3], *self.mask_strides())

    def mask_strides(self) -> tuple[int, ...]:
        """Of the mask, or none."""
        return (0, 0, 0) if self.mask is None else self.mask.stride()


class _Loss(torch.autograd.Function):
    """See :func:`filter_loss`."""

    @staticmethod
    def forward(
        ctx: Any, guesses: Tensor, log_weights: Tensor, target: Tensor, mask: Tensor | None,
        weights: Weights,
    ) -> Tensor:  # fmt: skip
        """Launch two kernels."""
        steps, members, sequences, count, columns = guesses.shape
        if target.stride(3) != 1 and columns > 1:
            target = target.contiguous()
        read = _Read(inner_contiguous(guesses), inner_contiguous(log_weights), target, mask)
        padded = power_of_two(count)
        options = {
            "K": count, "KP": padded, "C": columns, "ROWS": max(1, _TILE // padded),
            "MASKED": mask is not None, "PREDICTION": weights.prediction != 0,
            "ELBO": weights.elbo != 0, "num_warps": 4,
        }  # fmt: skip
        rows = steps * sequences
        shares = max(1, min(_MOST, -(-rows // _SHARE)))
        parts = guesses.new_empty(members, shares)
        loss_kernel.run(
            *read.pointers(), parts, *read.strides(), rows, sequences, shares, *weights,
            math.log(count), **options, grid=(shares, members), warmup=False,
        )  # fmt: skip
        out, counted = guesses.new_empty(members), guesses.new_empty(members)
        mean_loss_kernel.run(
            parts, read.pointers()[3], out, counted, *read.mask_strides(), steps, sequences, shares,
            MASKED=mask is not None, MOST=_MOST, BT=_STEPS, BN=_SEQUENCES, num_warps=4,
            grid=(members,), warmup=False,
        )  # fmt: skip
        ctx.save_for_backward(*read, counted)
        ctx.options, ctx.weights = options, weights
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Launch one."""
        *tensors, counted = ctx.saved_tensors
        read = _Read(*tensors)
        steps, members, sequences = read.guesses.shape[:3]
        predicts = ctx.weights.prediction != 0
        dguesses = torch.empty_like(read.guesses)
        dlog = torch.empty_like(read.log_weights) if predicts else dguesses
        blocks = -(-steps * sequences // ctx.options["ROWS"])
        loss_gradient_kernel.run(
            *read.pointers(), grad.contiguous(), counted, dguesses, dlog, *read.strides(),
            dguesses.stride(0), dguesses.stride(1), dlog.stride(0), dlog.stride(1),
            steps * sequences, sequences, *ctx.weights, **ctx.options,
            grid=(blocks, members), warmup=False,
        )  # fmt: skip
        return dguesses, dlog if predicts else None, None, None, None
