"""Pieces of the plain RNNs' kernels: a program's place, batch norm and activation of the candidate.

A program owns R sequences (all of a member where batch norm sums over them) and BU units of one
member; nothing is shared between programs, and no sum depends on the population.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.tiles import activate, activate_slope

# What differs between batches isn't compiled for.
PLAIN = ["t", "T", "N", "x_t", "x_m", "valid_t", "valid_m", "given_t"]


@triton.jit
def places(N, H: tl.constexpr, R: tl.constexpr, BU: tl.constexpr):
    """Return a program's member, sequences, units and mask, [R, BU]."""
    m = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * R + tl.arange(0, R)
    unit = tl.program_id(1) * BU + tl.arange(0, BU)
    return m, row, unit, (row < N)[:, None] & (unit < H)[None, :]


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
    raw, ok, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_, eps, H: tl.constexpr,
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
    grad, kept, ok, unit, mask, m, t, T, mean_, var_, given_t, gain_, shift_, dgain_, dshift_,
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
