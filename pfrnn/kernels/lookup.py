"""A population's embeddings, whose gradient is added up as for a member alone.

A library shares the additions of a token's gradients out by where they lie among those of all
members. Here a member's occurrences of a token are taken in their order in time and batch (a stable
sort, whose result is one whatever sorts), CHUNK at a time, and then the chunks.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from pfrnn.functional.first_order import first_order
from pfrnn.functional.lookup import stacked_rows
from pfrnn.kernels.plan import power_of_two

# Occurrences that one program adds up, and chunks that are added at a time.
CHUNK, TOGETHER = 8, 16
MAX_WIDTH = 256


# What differs between batches and populations isn't compiled for (see forward.py).
@triton.jit(do_not_specialize=["t_step", "m_step", "n_step", "M", "N"])
def occurrences_kernel(
    grad_, rows_, order_, start_, end_, parts_, out_, t_step, m_step, n_step, M, N,
    W: tl.constexpr, WP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Sum a chunk of a row's occurrences; grid (L,), a program a place in the sorted order.

    Occurrences of the row at place p lie at start to end. The sum goes to the row of ``out``
    where it is the only one, else to parts (L, W) at the chunk's first place.
    """
    p = tl.program_id(0).to(tl.int64)
    start, end = tl.load(start_ + p), tl.load(end_ + p)
    if (p - start) % CHUNK == 0:
        i, c = p + tl.arange(0, CHUNK), tl.arange(0, WP)
        place = tl.load(order_ + i, mask=i < end, other=0)
        at = place // N // M * t_step + place // N % M * m_step + place % N * n_step
        mask = (i < end)[:, None] & (c < W)[None, :]
        total = tl.sum(tl.load(grad_ + at[:, None] + c[None, :], mask=mask, other=0.0), 0)
        alone = end - start <= CHUNK
        row = tl.load(rows_ + p).to(tl.int64)
        tl.store(out_ + row * W + c, total, mask=(c < W) & alone)
        tl.store(parts_ + p * W + c, total, mask=(c < W) & (end - start > CHUNK))


@triton.jit
def add_occurrences_kernel(
    rows_, start_, end_, parts_, out_,
    W: tl.constexpr, WP: tl.constexpr, CHUNK: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """Sum a row's chunks where it has several; grid (L,), work at a row's first place alone."""
    p = tl.program_id(0).to(tl.int64)
    start, end = tl.load(start_ + p), tl.load(end_ + p)
    if (p == start) & (end - start > CHUNK):
        c = tl.arange(0, WP)
        total = tl.zeros([WP], tl.float32)
        for first in range(0, tl.cdiv(end - start, CHUNK), TOGETHER):
            i = p + (first + tl.arange(0, TOGETHER)) * CHUNK
            mask = (i < end)[:, None] & (c < W)[None, :]
            total += tl.sum(tl.load(parts_ + i[:, None] * W + c[None, :], mask=mask, other=0.0), 0)
        row = tl.load(rows_ + p).to(tl.int64)
        tl.store(out_ + row * W + c, total, mask=c < W)


def table_gradient(grad: Tensor, rows: Tensor, count: int) -> Tensor:
    """Add up the gradients of each row's occurrences.

    Args:
        grad: (T, M, N, W) float32, W at most 256.
        rows: (T, M, N), whole numbers in [0, count); a row is of one member alone.
        count: of rows, below 2**31.

    Returns:
        (count, W), zeros where a row doesn't occur.
    """
    if grad.stride(3) != 1:
        grad = grad.contiguous()
    _, members, sequences, width = grad.shape
    found, order = torch.sort(rows.reshape(-1).to(torch.int32), stable=True)
    start = torch.searchsorted(found, found)
    end = torch.searchsorted(found, found, right=True)
    out, parts = grad.new_zeros(count, width), grad.new_empty(len(found), width)
    sizes = {"W": width, "WP": power_of_two(width), "CHUNK": CHUNK, "num_warps": 2}
    where = {"grid": (len(found),), "warmup": False}
    occurrences_kernel.run(
        grad, found, order, start, end, parts, out, grad.stride(0), grad.stride(1), grad.stride(2),
        members, sequences, **sizes, **where,
    )  # fmt: skip
    add_occurrences_kernel.run(found, start, end, parts, out, **sizes, TOGETHER=TOGETHER, **where)
    return out


def fits(tokens: Tensor, weight: Tensor) -> bool:
    """Whether the kernels take an embedding.

    float32, at most 256 wide, fewer than 2**31 rows of all members, none of the sizes zero.

    Args:
        tokens: as :func:`population_embed`'s; so is the other.
        weight: stacked, or the answer is no.
    """
    return (
        tokens.dim() == weight.dim() == 3
        and weight.dtype == torch.float32
        and weight.device == tokens.device
        and weight.shape[0] == tokens.shape[1]
        and min(*tokens.shape, *weight.shape) > 0
        and weight.shape[2] <= MAX_WIDTH
        and weight.shape[0] * weight.shape[1] < 2**31
    )


def lookup(tokens: Tensor, weight: Tensor) -> Any:
    """What :func:`pfrnn.functional.lookup.lookups` is given."""
    return population_embed(tokens, weight) if fits(tokens, weight) else NotImplemented


def population_embed(tokens: Tensor, weight: Tensor) -> Tensor:
    """Take each token's row of its member's table; the gradient is each member's own.

    Args:
        tokens: (T, M, N), whole numbers in [0, V).
        weight: (M, V, W) float32.

    Returns:
        (T, M, N, W).

    Gradients:
        Of the weight, added up as for a member alone, always in one order; once differentiable.

    Raises:
        ValueError: what the kernels don't take (:func:`fits`).
    """
    if not fits(tokens, weight):
        raise ValueError(
            f"expected tokens (T, M, N) and a float32 weight (M, V, W), W at most {MAX_WIDTH}, got "
            f"{tuple(tokens.shape)} and {tuple(weight.shape)} {weight.dtype}; use "
            "pfrnn.functional.lookup.embed"
        )
    return _Embed.apply(stacked_rows(tokens, weight), weight)


class _Embed(torch.autograd.Function):
    """rows (T, M, N), weight (M, V, W) -> (T, M, N, W)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        """Take the rows."""
        ctx.save_for_backward(rows)
        ctx.shape = weight.shape
        return F.embedding(rows, weight.reshape(-1, weight.shape[-1]))

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        """Add each row's gradients up."""
        (rows,) = ctx.saved_tensors
        members, vocabulary, _ = ctx.shape
        return None, table_gradient(grad, rows, members * vocabulary).view(ctx.shape)
