"""Asking for memory ahead of its use: from the card's memory into its L2 cache.

A load that comes just before its use costs a thread no registers in between, but all of the
latency; what lies in the L2 cache already costs a third of it. Nothing is read into a register and
nothing waited for, so that this may be done before a launch's wait, and for a later launch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pfrnn.kernels.dispatch import interpreted

_LINE = tl.constexpr(32)


def can_prefetch(asked: bool) -> bool:
    """Whether the kernels do it: the interpreter has no caches, and knows no such instruction."""
    return asked and not interpreted()


@triton.jit
def prefetch(base, count, MOST: tl.constexpr):
    """Ask for ``count`` float32 numbers, at most MOST, that lie side by side; none where 0.

    A thread asks for a line of 128 bytes, one line more than fit: they may begin anywhere.
    """
    LINES: tl.constexpr = triton.next_power_of_2(MOST // _LINE + 2)
    first = tl.arange(0, LINES) * _LINE
    there = ((first < count + _LINE) & (count > 0)).to(tl.int32)
    at = base + tl.maximum(tl.minimum(first, count - 1), 0)
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.b32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.b32 $0, 0; }",
        "=r,l,r", [at.to(tl.int64), there], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
