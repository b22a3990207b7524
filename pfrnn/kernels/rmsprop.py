"""RMSprop of a population that lies in one piece of memory, in three kernels.

The operations of the plain RMSprop update, in its order but for the norm's sum and
for multiplications and additions that a GPU contracts; each number is read and written once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# Values that a program takes at a time; that make one more program of a member; programs at most.
_BLOCK, _SHARE, _MOST = 1024, 2048, 64


@triton.jit(do_not_specialize=["TENSORS", "SHARES"])
def squares_kernel(g_, starts_, sizes_, parts_, TENSORS, SHARES, BLOCK: tl.constexpr):
    """Sum the squares of a member's share to parts (M, SHARES); grid (SHARES, M).

    Tensor j begins at ``starts_[j]`` with the first member's ``sizes_[j]`` values; each tensor's
    blocks begin with another share, so that small tensors don't all fall to the first.
    """
    share, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for j in range(TENSORS):
        size = tl.load(sizes_ + j)
        base = g_ + tl.load(starts_ + j) + m * size
        for block in range((share + SHARES - j % SHARES) % SHARES, tl.cdiv(size, BLOCK), SHARES):
            at = block * BLOCK + tl.arange(0, BLOCK)
            value = tl.load(base + at, mask=at < size, other=0.0)
            total += value * value
    tl.store(parts_ + m * SHARES + share, tl.sum(total, 0))


@triton.jit(do_not_specialize=["SHARES", "slack"])
def clip_kernel(
    parts_, clip_, alive_, norm_, factor_, moves_, SHARES, slack, MOST: tl.constexpr
):  # fmt: skip
    """Store a member's norm, its gradient's factor, and whether it moves; grid (M,)."""
    m = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, MOST)
    squares = tl.sum(tl.load(parts_ + m * SHARES + at, mask=at < SHARES, other=0.0), 0)
    norm = tl.sqrt_rn(squares)
    # A comparison with NaN is false.
    finite = norm < float("inf")
    tl.store(norm_ + m, norm)
    tl.store(factor_ + m, tl.minimum(tl.div_rn(tl.load(clip_ + m), norm + slack), 1.0))
    tl.store(moves_ + m, tl.where(finite, tl.load(alive_ + m), 0))


@triton.jit(do_not_specialize=["E", "decay", "rest", "epsilon"])
def rmsprop_kernel(
    theta_, square_, g_, member_, decays_, rate_, l2_, factor_, moves_, E, decay, rest, epsilon,
    PARTLY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Update parameters and running means of members that move; grid (E / BLOCK,).

    ``rest`` is 1 - decay: 1 minus a rounded decay would be another number.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < E
    m = tl.load(member_ + at, mask=there, other=0)
    moves = there & (tl.load(moves_ + m) != 0)
    theta = tl.load(theta_ + at, mask=moves, other=0.0)
    g = tl.load(g_ + at, mask=moves, other=0.0) * tl.load(factor_ + m)
    decayed = g + tl.load(l2_ + m) * theta
    if PARTLY:
        # Chosen, not weighed by zero: 0 times infinity, and the sign of a zero.
        decayed = tl.where(tl.load(decays_ + at, mask=moves, other=0) != 0, decayed, g)
    square = tl.load(square_ + at, mask=moves, other=0.0) * decay
    square += rest * (decayed * decayed)
    step = tl.div_rn(decayed, tl.sqrt_rn(square) + epsilon) * tl.load(rate_ + m)
    tl.store(theta_ + at, theta - step, mask=moves)
    tl.store(square_ + at, square, mask=moves)


def check_lie_together(**tensors: Tensor) -> None:
    """Refuse views with gaps: the kernels read one number after the other.

    Raises:
        ValueError: a tensor isn't contiguous.
    """
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"{name}: expected a contiguous tensor, got {tuple(tensor.shape)} with strides "
                f"{tensor.stride()}"
            )


class Places(NamedTuple):
    """Where a population's tensors lie in its memory, on the device.

    Attributes:
        member: (E,) int32, whose each element is; those of gaps are the first's.
        starts: (TENSORS,) int64, each tensor's first element.
        sizes: (TENSORS,) int64, elements of one member.
        values: of a member in all, which decides how many programs sum its norm.
    """

    member: Tensor
    starts: Tensor
    sizes: Tensor
    values: int


class Clipped(NamedTuple):
    """What a step found out about each member: (M,)."""

    norm: Tensor
    factor: Tensor
    moves: Tensor


def clipped(gradient: Tensor, places: Places, clip: Tensor, alive: Tensor, slack: float) -> Clipped:
    """Return norms before clipping, factors, and who moves: alive, with a finite norm.

    Args:
        gradient: (E,) float32.
        places: of the population.
        clip: (M,), largest norms.
        alive: (M,) bool.
        slack: added to the norm that the largest is divided by.

    Raises:
        ValueError: a tensor isn't contiguous.
    """
    check_lie_together(gradient=gradient, clip=clip, alive=alive)
    members = len(clip)
    shares = max(1, min(_MOST, -(-places.values // _SHARE)))
    parts = gradient.new_empty(members, shares)
    # Apart, so that each begins where Triton may count on it, whatever the population.
    norm, factor = gradient.new_empty(members), gradient.new_empty(members)
    moves = torch.empty_like(alive)
    squares_kernel.run(
        gradient, places.starts, places.sizes, parts, len(places.starts), shares,
        BLOCK=_BLOCK, num_warps=4, grid=(shares, members), warmup=False,
    )  # fmt: skip
    clip_kernel.run(
        parts, clip, alive.view(torch.uint8), norm, factor, moves.view(torch.uint8), shares,
        slack, MOST=_MOST, num_warps=1, grid=(members,), warmup=False,
    )  # fmt: skip
    return Clipped(norm, factor, moves)


def rmsprop(
    parameters: Tensor, squares: Tensor, gradient: Tensor, places: Places, found: Clipped,
    rate: Tensor, l2: Tensor, decays: Tensor | None, decay: float, epsilon: float,
) -> None:  # fmt: skip
    """Write one step; no memory is asked for.

    Args:
        parameters: (E,), read and written.
        squares: (E,), running means, likewise.
        gradient: (E,), before clipping.
        places: of the population.
        found: of :func:`clipped`.
        rate: (M,), learning rates.
        l2: (M,), weights.
        decays: (E,) bool, where L2 acts; None: everywhere.
        decay: rho in (0, 1).
        epsilon: added to the root.

    Raises:
        ValueError: a tensor isn't contiguous.
    """
    check_lie_together(
        parameters=parameters, squares=squares, gradient=gradient, rate=rate, l2=l2
    )  # fmt: skip
    rmsprop_kernel.run(
        parameters, squares, gradient, places.member,
        squares if decays is None else decays.view(torch.uint8), rate, l2, found.factor,
        found.moves.view(torch.uint8), len(parameters), decay, 1.0 - decay,
        epsilon, PARTLY=decays is not None, BLOCK=_BLOCK, num_warps=4,
        grid=(-(-len(parameters) // _BLOCK),), warmup=False,
    )  # fmt: skip
