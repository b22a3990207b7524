"""Powers of two that bring each member's largest incoming gradient into float16's range."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pfrnn.kernels.plan import inner_contiguous

# Values that a program takes at a time, and at least in all; programs of a whole population.
_BLOCK, _SHARE, _PROGRAMS = 1024, 4096, 1024


# What differs between batches and populations isn't compiled for (see forward.py).
@triton.jit(do_not_specialize=["t_step", "m_step", "count", "R", "SHARES", "first", "ALL"])
def peak_kernel(
    x_, peaks_, t_step, m_step, count, R, SHARES, first, ALL, BLOCK: tl.constexpr
):  # fmt: skip
    """Store the largest size of every SHARES-th block of a member to peaks (M, ALL) from ``first``.

    Sizes are compared by their bits, which are in the order of the numbers, and those of what is
    no number are the largest. Grid (SHARES, M).
    """
    share, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    peak = tl.zeros([BLOCK], tl.int32)
    for block in range(share, tl.cdiv(count, BLOCK), SHARES):
        at = block * BLOCK + tl.arange(0, BLOCK)
        place = (at // R).to(tl.int64) * t_step + m * m_step + at % R
        value = tl.load(x_ + place, mask=at < count, other=0.0)
        peak = tl.maximum(peak, value.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    tl.store(peaks_ + m * ALL + first + share, tl.max(peak, 0))


@triton.jit(do_not_specialize=["ALL"])
def half_scale_kernel(peaks_, scale_, unit_, ALL, BLOCK: tl.constexpr):
    """Store the power of two and its inverse; grid (M,)."""
    m = tl.program_id(0).to(tl.int64)
    peak = tl.zeros([BLOCK], tl.int32)
    for first in range(0, ALL, BLOCK):
        at = first + tl.arange(0, BLOCK)
        peak = tl.maximum(peak, tl.load(peaks_ + m * ALL + at, mask=at < ALL, other=0))
    bits = tl.max(peak, 0)
    # A peak in [2^e, 2^(e + 1)), e = bits / 2^23 - 127, comes to [8, 16).
    exponent = tl.minimum(tl.maximum(130 - (bits >> 23), -126), 126)
    exponent = tl.where((bits > 0) & (bits < 0x7F800000), exponent, 0)
    tl.store(scale_ + m, ((exponent + 127) << 23).to(tl.float32, bitcast=True))
    tl.store(unit_ + m, ((127 - exponent) << 23).to(tl.float32, bitcast=True))


def half_scale(*incoming: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (M,) powers of two that bring each member's largest gradient to 8 to 16, and inverses.

    float16 is exact to 2^-11 from 2^-14 on and ends at 65504: gradients of gates keep TF32's
    precision from 2^-17 of the largest incoming one on, and may grow to 4094 times that.
    A member's scale depends on its own gradients alone; it is 1 where nothing but zeros came, or
    what is no finite number.

    Args:
        incoming: gradients (T, M, ...) float32 of up to 2**31 - 1 values a member, or None; one at
            least.

    Raises:
        ValueError: all are None.
    """
    given = [inner_contiguous(x) for x in incoming if x is not None]
    if not given:
        raise ValueError("expected a gradient, got none")
    members = given[0].shape[1]
    counts = [x.numel() // members for x in given]
    most = max(1, _PROGRAMS // members)
    shares = [max(1, min(most, -(-count // _SHARE))) for count in counts]
    peaks = torch.empty(members, sum(shares), dtype=torch.int32, device=given[0].device)
    # Apart, so that each begins where Triton may count on it, whatever the population.
    scale, unit = given[0].new_empty(members), given[0].new_empty(members)
    first = 0
    for x, count, share in zip(given, counts, shares, strict=True):
        peak_kernel.run(
            x, peaks, x.stride(0), x.stride(1), count, count // len(x), share, first, sum(shares),
            BLOCK=_BLOCK, num_warps=4, grid=(share, members), warmup=False,
        )  # fmt: skip
        first += share
    half_scale_kernel.run(
        peaks, scale, unit, sum(shares), BLOCK=_BLOCK, num_warps=4, grid=(members,), warmup=False
    )
    return scale, unit
