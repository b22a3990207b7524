"""Sums of a few parts, taken one by one: the same bits for every population, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit(do_not_specialize=["parts", "size"])
def in_order_kernel(parts_, out_, parts, size, BLOCK: tl.constexpr):
    """Add parts (M, P, size) up to out (M, size), first to last; grid (size / BLOCK, M)."""
    m = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    source = parts_ + m * parts * size + at
    total = tl.load(source, mask=mask, other=0.0)
    # Eight loads under way at once; the additions wait for each other alone.
    for start in range(1, parts, 8):
        for j in tl.static_range(8):
            there = tl.full([BLOCK], start + j, tl.int32) < parts
            value = tl.load(source + (start + j) * size, mask=mask & there, other=0.0)
            # Chosen: adding zero would turn minus zero into zero.
            total = tl.where(there, total + value, total)
    tl.store(out_ + m * size + at, total, mask=mask)


def in_order(parts: Tensor, only_compile: bool = False) -> Tensor:
    """Add the second axis up one by one.

    Args:
        parts: (M, P, ...).
        only_compile: ask Triton for the program and launch nothing.

    Returns:
        (M, ...): parts[:, 0] + parts[:, 1] + ..., from left to right.
    """
    parts = parts.contiguous()
    members, count = parts.shape[:2]
    total = torch.empty_like(parts[:, 0], memory_format=torch.contiguous_format)
    size = total[0].numel()
    in_order_kernel.run(
        parts, total, count, size, BLOCK=_BLOCK, num_warps=4,
        grid=(triton.cdiv(size, _BLOCK), members), warmup=only_compile,
    )  # fmt: skip
    return total
