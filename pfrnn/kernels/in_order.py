"""Sums of the programs' parts, taken one by one: the same bits for every population.

One launch takes all of them: of the recurrent weights' gradient, of f_obs's, of a head's. It writes
the gradients where their readers want them, so that none is copied again.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pfrnn.kernels.readout import PARTS, halved

_BLOCK = 256


@triton.jit
def one_by_one(
    source, step, parts, mask, HALVED: tl.constexpr, WIDTH: tl.constexpr, W: tl.constexpr
):  # fmt: skip
    """Add parts up, first to last; each lies ``step`` after the one before it.

    W loads are under way at once; the additions wait for each other alone. Where ``HALVED``, each
    part is itself a sum of a few, WIDTH apart.
    """
    if HALVED:
        total = halved(source, WIDTH, mask)
    else:
        total = tl.load(source, mask=mask, other=0.0)
    for start in range(1, parts, W):
        for j in tl.static_range(W):
            there = mask & (tl.full([WIDTH], start + j, tl.int32) < parts)
            if HALVED:
                value = halved(source + (start + j) * step, WIDTH, there)
            else:
                value = tl.load(source + (start + j) * step, mask=there, other=0.0)
            # Chosen: adding zero would turn minus zero into zero.
            total = tl.where(there, total + value, total)
    return total


@triton.jit
def add_weights(
    dw, recurrent_, candidate, pid, m, SHARES,
    GRU: tl.constexpr, H: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add a member's blocks up; they go where the parameters' gradients are."""
    G: tl.constexpr = 4 if GRU else 5
    at = pid * BLOCK + tl.arange(0, BLOCK)
    mask = at < SIZE
    total = one_by_one(dw + at, SIZE, SHARES, mask, False, BLOCK, 8)
    gate, i, o = at // (H * H), at // H % H, at % H
    if GRU:
        column = tl.where(gate > 2, gate - 1, gate) * H + o
        tl.store(recurrent_ + (m * H + i) * 3 * H + column, total, mask=mask & (gate != 2))
        tl.store(candidate + at, total, mask=mask & (gate == 2))
    else:
        tl.store(recurrent_ + (m * H + i) * G * H + gate * H + o, total, mask=mask)


@triton.jit
def add_units(
    source, step, out, P, HALVED: tl.constexpr, HP: tl.constexpr, W: tl.constexpr
):  # fmt: skip
    """Add up a number a unit."""
    unit = tl.arange(0, HP)
    tl.store(out + unit, one_by_one(source + unit, step, P, unit < HP, HALVED, HP, W))


@triton.jit(do_not_specialize=["P", "SHARES"])
def in_order_kernel(
    dw_, dobs_, dread_, recurrent_, candidate_, observation_, readout_, P, SHARES,
    GRU: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, OUT: tl.constexpr, EACH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Add all parts up; grid (G H H / BLOCK, one more, and one an output; M)."""
    SIZE: tl.constexpr = (4 if GRU else 5) * H * H
    FIRST: tl.constexpr = (SIZE + BLOCK - 1) // BLOCK
    m = tl.program_id(1).to(tl.int64)
    pid = tl.program_id(0)
    if pid < FIRST:
        dw = dw_ + m * SHARES * SIZE
        add_weights(dw, recurrent_, candidate_ + m * SIZE, pid, m, SHARES, GRU, H, SIZE, BLOCK)
    if pid == FIRST:
        add_units(dobs_ + m * P * HP, HP, observation_ + m * HP, P, False, HP, 16)
    if OUT > 0:
        if pid > FIRST:
            c = pid - FIRST - 1
            dread = dread_ + (m * P * OUT + c) * EACH * HP
            add_units(dread, OUT * EACH * HP, readout_ + (m * OUT + c) * HP, P, True, HP, 8)


def in_order(
    weights: Tensor, observation: Tensor, readout: Tensor, gru: bool, only_compile: bool = False
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Add the second axes up one by one.

    Args:
        weights: (M, SHARES, G, H, H), blocks (in, out).
        observation: (M, P, HP), units padded.
        readout: (M, P, OUT, PARTS, HP): before that, the parts are added half to half.
        gru: whether the blocks are a PF-GRU's.
        only_compile: ask Triton for the program and launch nothing.

    Returns:
        Gradients of recurrent (M, H, 5H or 3H), of a PF-GRU's candidate (M, H, H), of observation
        (M, H), and of the head (M, H, OUT), None without one.
    """
    members, shares, gates, units, _ = weights.shape
    programs, padded = observation.shape[1:]
    outputs = readout.shape[2]
    new = weights.new_empty
    # Four blocks, one of them used: the candidate lies as it did in all blocks' sums, since where
    # a tensor begins can decide how torch's sums over it run.
    blocks = new(members, gates, units, units) if gru else weights
    recurrent = new(members, units, (gates - gru) * units)
    obs, read = new(members, padded), new(members, outputs, padded)
    in_order_kernel.run(
        weights, observation, readout if outputs else weights, recurrent, blocks, obs,
        read if outputs else obs, programs, shares,
        GRU=gru, H=units, HP=padded, OUT=outputs, EACH=PARTS.value, BLOCK=_BLOCK, num_warps=4,
        grid=(triton.cdiv(gates * units * units, _BLOCK) + 1 + outputs, members),
        warmup=only_compile,
    )  # fmt: skip
    return (
        recurrent,
        blocks[:, 2] if gru else None,
        obs[:, :units],
        read[..., :units].transpose(1, 2) if outputs else None,
    )
