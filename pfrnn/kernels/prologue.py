"""What a run's first step reads, laid out by one launch instead of a dozen small copies.

The state before the first step goes to where the steps go on from, the weights into blocks in both
orders (the products of either direction read their factors along memory), the numbers of values
behind the batch statistics where nothing is padded.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


class Prepared(NamedTuple):
    """What the launch writes.

    Attributes:
        hidden: (M, T+1, N, K, H), of which the first step is written, as of the next three.
        cell: likewise, or None without a cell.
        log_weights: (M, T+1, N, K).
        ancestors: (M, T+1, N, K) int32, the identity.
        blocks: (2, M, G, H, H), weights in the kernels' order, (in, out) and then (out, in).
        counts: (1, 1, P), values behind each program's sums, or None: there is padding.
    """

    hidden: Tensor
    cell: Tensor | None
    log_weights: Tensor
    ancestors: Tensor
    blocks: Tensor
    counts: Tensor | None


@triton.jit(do_not_specialize=["steps", "size", "rows", "P", "each", "last"])
def prologue_kernel(
    h0_, c0_, lw0_, recurrent_, candidate_, hidden_, cell_, lw_, ancestors_, weights_, turned_,
    counts_, steps, size, rows, P, each, last,
    GRU: tl.constexpr, COUNTS: tl.constexpr, K: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy, turn and count; size is N K H, rows N K; grid (size or G H H / BLOCK, M)."""
    G: tl.constexpr = 4 if GRU else 5
    m = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(h0_ + m * size + at, mask=inside)
    tl.store(hidden_ + m * steps * size + at, value, mask=inside)
    if not GRU:
        value = tl.load(c0_ + m * size + at, mask=inside)
        tl.store(cell_ + m * steps * size + at, value, mask=inside)
    inside = at < rows
    value = tl.load(lw0_ + m * rows + at, mask=inside)
    tl.store(lw_ + m * steps * rows + at, value, mask=inside)
    tl.store(ancestors_ + m * steps * rows + at, at % K, mask=inside)
    inside = at < G * H * H
    gate, i, o = at // (H * H), at // H % H, at % H
    if GRU:
        own = gate == 2
        column = tl.where(gate > 2, gate - 1, gate) * H + o
        value = tl.load(recurrent_ + (m * H + i) * 3 * H + column, mask=inside & (gate != 2))
        other = tl.load(candidate_ + (m * H + i) * H + o, mask=inside & own)
        value = tl.where(own, other, value)
    else:
        value = tl.load(recurrent_ + (m * H + i) * G * H + gate * H + o, mask=inside)
    tl.store(weights_ + m * G * H * H + at, value, mask=inside)
    tl.store(turned_ + ((m * G + gate) * H + o) * H + i, value, mask=inside)
    if COUNTS:
        # The same numbers, whichever member's program writes them.
        tl.store(counts_ + at, tl.where(at == P - 1, last, each).to(tl.float32), mask=at < P)


def prologue(
    start: tuple[Tensor, Tensor | None, Tensor], recurrent: Tensor, candidate: Tensor | None,
    to: Prepared, programs: int, each: int,
) -> None:  # fmt: skip
    """Fill in ``to``.

    Args:
        start: hidden (M, N, K, H), cell or None, and log-weights (M, N, K).
        recurrent: (M, H, 5H) of a PF-LSTM, or (M, H, 3H) of a PF-GRU (update, reset, scale).
        candidate: (M, H, H) of a PF-GRU, which goes before the scale; else None.
        to: tensors to write.
        programs: P, of each member.
        each: sequences of a program; the last one may have fewer.
    """
    members, steps, sequences, particles, units = to.hidden.shape
    hidden, cell, log_weights = (None if x is None else x.contiguous() for x in start)
    rows = sequences * particles
    left = sequences - (programs - 1) * each
    weights, turned = to.blocks
    prologue_kernel.run(
        hidden, cell, log_weights, recurrent.contiguous(),
        None if candidate is None else candidate.contiguous(), to.hidden, to.cell, to.log_weights,
        to.ancestors, weights, turned, to.counts,
        steps, rows * units, rows, programs, each * particles, left * particles,
        GRU=candidate is not None, COUNTS=to.counts is not None, K=particles, H=units,
        BLOCK=_BLOCK, num_warps=4, warmup=False,
        grid=(triton.cdiv(max(rows * units, weights[0].numel()), _BLOCK), members),
    )  # fmt: skip
