"""How a population's products are cut into programs, and their launches.

No sum depends on how many members there are: neither do rows of a program, nor shares of a sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.kernels.linear_kernels import (
    add_shares_kernel,
    input_gradient_kernel,
    parameter_gradient_kernel,
    product_kernel,
)
from pfrnn.kernels.plan import inner_contiguous, padded_units, strides

# Columns of a piece.
_COLUMNS = 64
# Programs a member that add up the parameters' gradients, where there are rows enough.
_PROGRAMS = 48
# Sums of shares that a program takes.
_BLOCK = 256
# What Triton assumes of a tensor that torch has allocated; a view may begin anywhere.
_ALIGNMENT = 16


class Tiles(NamedTuple):
    """How a kernel's programs are cut: for sizes 64 x 321 no register spills on 9.0.

    Attributes:
        rows: that a program owns, or takes at a time.
        stages: pieces of the factors under way at once.
        registers: the most that a thread may have, or None.
    """

    rows: int
    stages: int
    registers: int | None = None


_PRODUCT, _INPUT, _PARAMETER = Tiles(64, 1), Tiles(64, 2), Tiles(32, 2)


class Rows(NamedTuple):
    """A tensor (T, M, N, width) as the kernels read it, and its strides in rows."""

    tensor: Tensor
    time: int
    member: int


class Sizes(NamedTuple):
    """Of a product: T, M, N, D, E, and the precision of its factors."""

    steps: int
    members: int
    sequences: int
    inputs: int
    outputs: int
    precision: str

    @property
    def rows(self) -> int:
        """Rows of a member."""
        return self.steps * self.sequences

    def blocks(self, tiles: Tiles) -> int:
        """Blocks of a member's rows."""
        return -(-self.rows // tiles.rows)

    @property
    def pieces(self) -> int:
        """Pieces of the columns."""
        return -(-self.outputs // _COLUMNS)

    @property
    def shares(self) -> int:
        """Shares of a member's rows: whatever the population."""
        return max(1, min(self.blocks(_PARAMETER), _PROGRAMS // self.pieces))

    def constants(self, tiles: Tiles) -> dict[str, Any]:
        """Return what a kernel that multiplies is compiled for."""
        rest = self.outputs % _COLUMNS
        return {
            "D": self.inputs, "DP": padded_units(self.inputs), "E": self.outputs,
            "BR": tiles.rows, "BE": _COLUMNS, "TAIL": padded_units(rest) if rest else 0,
            "PREC": self.precision, "num_warps": 8 if self.inputs > 64 else 4,
            "num_stages": tiles.stages, "maxnreg": tiles.registers,
        }  # fmt: skip


def aligned(tensor: Tensor) -> Tensor:
    """Return it contiguous and where the kernels may read four numbers at once."""
    if not tensor.is_contiguous():
        return tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


def rows_of(tensor: Tensor) -> Rows:
    """Return (T, M, N, width) as rows; copies only if rows aren't whole or not aligned."""
    tensor, width = inner_contiguous(tensor), tensor.shape[-1]
    # An axis of one has any stride.
    by = [s if n > 1 else 0 for n, s in zip(tensor.shape, strides(tensor), strict=False)]
    if any(stride % width for stride in by) or tensor.data_ptr() % _ALIGNMENT:
        return rows_of(tensor.clone(memory_format=torch.contiguous_format))
    return Rows(tensor, by[0] // width, by[1] // width)


def multiply(
    size: Sizes, x: Rows, weight: Tensor, bias: Tensor | None, out: Tensor,
    only_compile: bool = False,
) -> None:  # fmt: skip
    """Write x @ weight + bias to out (M, T, N, E)."""
    product_kernel.run(
        x.tensor, weight, weight if bias is None else bias, out, x.time, x.member, size.rows,
        size.sequences, BIAS=bias is not None, **size.constants(_PRODUCT),
        grid=(size.blocks(_PRODUCT), size.members), warmup=only_compile,
    )  # fmt: skip


def input_gradient(
    size: Sizes, g: Tensor, weight: Tensor, dx: Rows, only_compile: bool = False
) -> None:
    """Write g @ weight^T to dx."""
    input_gradient_kernel.run(
        g, weight, dx.tensor, dx.time, dx.member, size.rows,
        size.sequences, **size.constants(_INPUT),
        grid=(size.blocks(_INPUT), size.members), warmup=only_compile,
    )  # fmt: skip


def parameter_gradient(
    size: Sizes, x: Rows, g: Tensor, weight: Tensor | None, bias: Tensor | None,
    only_compile: bool = False,
) -> None:  # fmt: skip
    """Write x^T g to weight and the sum of g to bias, where there are any."""
    needs = {"WEIGHT": weight is not None, "BIAS": bias is not None}
    each = (size.inputs * needs["WEIGHT"] + needs["BIAS"]) * size.outputs
    count = 0 if only_compile else size.shares
    parts = x.tensor.new_empty(size.members, count, each)
    parameter_gradient_kernel.run(
        x.tensor, g, parts, x.time, x.member, size.shares, size.rows,
        size.sequences, **size.constants(_PARAMETER), **needs,
        grid=(size.pieces * size.shares, size.members), warmup=only_compile,
    )  # fmt: skip
    add_shares_kernel.run(
        parts, parts if weight is None else weight, parts if bias is None else bias, size.shares,
        D=size.inputs, E=size.outputs, **needs, BLOCK=_BLOCK, num_warps=4,
        grid=(-(-each // _BLOCK), size.members), warmup=only_compile,
    )  # fmt: skip
