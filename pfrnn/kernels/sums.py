"""A population's sums, whose order follows from a member's own sizes.

A library's reduction spreads its threads by how many results there are, so that a member's loss,
the norm that its gradient is clipped by and the gradient of a bias would be rounded by its company.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pfrnn.functional.first_order import first_order
from pfrnn.kernels.plan import power_of_two

# Values that a program takes at a time.
_BLOCK = 1024
# Values of a member that make one more program, and the most programs of a member.
_SHARE, MOST = 2 * _BLOCK, 64
MAX_COLUMNS = 16


# What differs between batches and populations isn't compiled for (see forward.py).
@triton.jit(do_not_specialize=["t_step", "m_step", "n_step", "rows", "N", "SHARES"])
def member_shares_kernel(
    x_, parts_, t_step, m_step, n_step, rows, N, SHARES,
    C: tl.constexpr, CP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Sum every SHARES-th block of a member's rows to parts (M, SHARES, C); grid (SHARES, M).

    Row (t, n) of member m begins at t * t_step + m * m_step + n * n_step; its C values are
    neighbours.
    """
    share, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    c = tl.arange(0, CP)
    total = tl.zeros([ROWS, CP], tl.float32)
    for block in range(share, tl.cdiv(rows, ROWS), SHARES):
        r = block * ROWS + tl.arange(0, ROWS)
        place = (r // N).to(tl.int64) * t_step + m * m_step + (r % N).to(tl.int64) * n_step
        mask = (r < rows)[:, None] & (c < C)[None, :]
        total += tl.load(x_ + place[:, None] + c[None, :], mask=mask, other=0.0)
    tl.store(parts_ + (m * SHARES + share) * C + c, tl.sum(total, 0), mask=c < C)


@triton.jit(do_not_specialize=["SHARES"])
def add_member_shares_kernel(
    parts_, out_, SHARES, C: tl.constexpr, CP: tl.constexpr, MOST: tl.constexpr
):  # fmt: skip
    """Sum parts (M, SHARES, C) to out (M, C); grid (M,)."""
    m = tl.program_id(0).to(tl.int64)
    share, c = tl.arange(0, MOST), tl.arange(0, CP)
    mask = (share < SHARES)[:, None] & (c < C)[None, :]
    parts = tl.load(parts_ + (m * SHARES + share)[:, None] * C + c[None, :], mask=mask, other=0.0)
    tl.store(out_ + m * C + c, tl.sum(parts, 0), mask=c < C)


class Layout(NamedTuple):
    """How rows of C neighbouring values lie: t * step + m * step + n * step."""

    steps: int
    members: int
    sequences: int
    strides: tuple[int, int, int]
    columns: int


def shares_of(rows: int, columns: int = 1) -> int:
    """Return the programs that sum a member's rows: whatever the population."""
    return max(1, min(MOST, -(-rows * power_of_two(columns) // _SHARE)))


def _sum(x: Tensor, layout: Layout) -> Tensor:
    """Return (M, C): one kernel, or two where a member has several programs."""
    members, columns = layout.members, layout.columns
    rows, padded = layout.steps * layout.sequences, power_of_two(columns)
    shares = shares_of(rows, columns)
    out = x.new_empty(members, columns)
    parts = out if shares == 1 else x.new_empty(members, shares, columns)
    member_shares_kernel.run(
        x, parts, *layout.strides, rows, layout.sequences, shares,
        C=columns, CP=padded, ROWS=_BLOCK // padded, num_warps=4,
        grid=(shares, members), warmup=False,
    )  # fmt: skip
    if shares > 1:
        add_member_shares_kernel.run(
            parts, out, shares, C=columns, CP=padded, MOST=MOST, num_warps=1,
            grid=(members,), warmup=False,
        )  # fmt: skip
    return out


def fits(x: Tensor) -> bool:
    """Whether the kernels take a sum: float32, (T, M, N), none of the sizes zero."""
    return x.dim() == 3 and x.dtype == torch.float32 and min(x.shape) > 0


def total(x: Tensor) -> Any:
    """What :func:`pfrnn.functional.sums.sums` is given."""
    return population_sums(x) if fits(x) else NotImplemented


def population_sums(x: Tensor) -> Tensor:
    """Sum over the first and the last axis, each member as it would be summed alone.

    Args:
        x: (T, M, N) float32, of any strides; at most 2**31 - 1 values a member.

    Returns:
        (M,).

    Gradients:
        Of x, a view that repeats the result's; once differentiable.

    Raises:
        ValueError: what the kernels don't take (:func:`fits`).
    """
    if not fits(x):
        raise ValueError(
            f"expected float32 (T, M, N) with values in it, got {tuple(x.shape)} {x.dtype}; "
            "use pfrnn.functional.sums.member_sums"
        )
    return _Sums.apply(x)


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """Add a member's own bias to all that it has.

    Args:
        x: (T, M, N, K, C) float32, C at most 16.
        bias: (M, C) float32.

    Returns:
        As x.

    Gradients:
        Of both; the bias's is summed as for a member alone. Once differentiable.

    Raises:
        ValueError: other types or shapes.
    """
    if x.dim() != 5 or bias.shape != (x.shape[1], x.shape[4]) or x.shape[4] > MAX_COLUMNS:
        raise ValueError(
            f"expected x (T, M, N, K, C) with C at most {MAX_COLUMNS} and bias (M, C), got "
            f"{tuple(x.shape)} and {tuple(bias.shape)}"
        )
    if x.dtype != torch.float32 or bias.dtype != torch.float32:
        raise ValueError(f"expected float32, got {x.dtype} and {bias.dtype}")
    return _AddBias.apply(x, bias)


class _Sums(torch.autograd.Function):
    """(T, M, N) -> (M,)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Sum."""
        ctx.shape = x.shape
        strides = (x.stride(0), x.stride(1), x.stride(2))
        return _sum(x, Layout(*x.shape, strides, 1)).squeeze(1)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Repeat each member's gradient."""
        return grad.view(1, -1, 1).expand(ctx.shape)


class _AddBias(torch.autograd.Function):
    """x (T, M, N, K, C), bias (M, C) -> as x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        """Add."""
        return x + bias[:, None, None, :]

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Pass the gradient on, and sum it over all but members and columns."""
        if not ctx.needs_input_grad[1]:
            return grad, None
        whole = grad.contiguous()
        steps, members, sequences, count, columns = whole.shape
        each = sequences * count
        strides = (members * each * columns, each * columns, columns)
        return grad, _sum(whole, Layout(steps, members, each, strides, columns))
