"""A population's products with stacked weights, for sequences: nearly float32 on tensor cores.

The library multiplies float32 factors without tensor cores; these kernels split each factor into
TF32 terms (tf32x3). Leaving them out costs 3 to 4 % of a step of twelve PF-LSTMs or PF-GRUs, and 5
to 8 % of one of 36 plain RNNs (H200). Each pass reads and writes its tensors once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.autocast import autocasting
from pfrnn.kernels.ground import first_order, inner_contiguous, padded_units, strides
from pfrnn.kernels.launch import compile_together
from pfrnn.kernels.linear_kernels import (
    input_gradient_kernel,
    parameter_gradient_kernel,
    product_kernel,
)

# Wider inputs would have to be read in pieces; the networks' encoders are narrower.
MAX_INPUTS = 128
# Columns of a piece, and rows that a program owns, or takes at a time for the parameters' gradient:
# for sizes 64 x 321 no register spills on 9.0.
_COLUMNS, _ROWS, _TAKEN = 64, 64, 32
# Programs a member that add up the parameters' gradients, where there are rows enough.
_PROGRAMS = 48
# What Triton assumes of a tensor that torch has allocated; a view may begin anywhere.
_ALIGNMENT = 16


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    """Compute ``x @ weight + bias`` of sequences, each member its own.

    What :func:`pfrnn.functional.linear.products` is given. A single step's products are left to the
    library, which is as quick where rows are few.

    Args:
        x: (T, M, N, D), D at most 128; copied unless its last two axes are contiguous and whole
            rows lie between times and members.
        weight: (M, D, E).
        bias: (M, E) or None.

    Returns:
        (T, M, N, E), a transposed view of (M, T, N, E); ``NotImplemented`` for other sizes, types
        or devices than these, and inside autocast.

    Gradients:
        Of all three; once differentiable.
    """
    tensors = [x, weight] if bias is None else [x, weight, bias]
    if (
        x.dim() != 4
        or weight.shape[1] > MAX_INPUTS
        or min(*x.shape, *weight.shape) == 0
        or any(one.dtype != torch.float32 or one.device != x.device for one in tensors)
        or autocasting(x.device)
    ):
        return NotImplemented
    return _Product.apply(x, weight, bias)


class _Rows(NamedTuple):
    """A tensor (T, M, N, width) as the kernels read it, and its strides in rows."""

    tensor: Tensor
    time: int
    member: int


class _Sizes(NamedTuple):
    """Of a product: T, M, N, D, E."""

    steps: int
    members: int
    sequences: int
    inputs: int
    outputs: int

    def blocks(self, rows: int) -> int:
        """Blocks of a member's rows."""
        return -(-self.steps * self.sequences // rows)

    @property
    def pieces(self) -> int:
        """Pieces of the columns."""
        return -(-self.outputs // _COLUMNS)

    @property
    def shares(self) -> int:
        """Shares of a member's rows."""
        return max(1, min(self.blocks(_TAKEN), _PROGRAMS // self.pieces))

    def constants(self, rows: int, stages: int) -> dict[str, Any]:
        """Return what a kernel is compiled for."""
        rest = self.outputs % _COLUMNS
        return {
            "D": self.inputs, "DP": padded_units(self.inputs), "E": self.outputs,
            "BR": rows, "BE": _COLUMNS, "TAIL": padded_units(rest) if rest else 0,
            "PREC": "tf32x3", "num_warps": 8 if self.inputs > 64 else 4, "num_stages": stages,
        }  # fmt: skip

    def multiply(
        self, x: _Rows, weight: Tensor, bias: Tensor | None, out: Tensor, warmup: bool = False
    ) -> None:
        """Write x @ weight + bias to out (M, T, N, E)."""
        product_kernel.run(
            x.tensor, weight, bias, out, x.time, x.member, self.steps * self.sequences,
            self.sequences, BIAS=bias is not None, **self.constants(_ROWS, 1),
            grid=(self.blocks(_ROWS), self.members), warmup=warmup,
        )  # fmt: skip

    def input_gradient(self, g: Tensor, weight: Tensor, dx: _Rows, warmup: bool = False) -> None:
        """Write g @ weight^T to dx."""
        input_gradient_kernel.run(
            g, weight, dx.tensor, dx.time, dx.member, self.steps * self.sequences,
            self.sequences, **self.constants(_ROWS, 2),
            grid=(self.blocks(_ROWS), self.members), warmup=warmup,
        )  # fmt: skip

    def parameter_gradient(self, x: _Rows, g: Tensor, warmup: bool = False) -> Tensor:
        """Return x^T g, (M, D, E), and below it the sum of g: (M, D + 1, E)."""
        size = (self.members, self.shares, self.inputs + 1, self.outputs)
        parts = g.new_empty((0,) if warmup else size)
        parameter_gradient_kernel.run(
            x.tensor, g, parts, x.time, x.member, self.shares, self.steps * self.sequences,
            self.sequences, **self.constants(_TAKEN, 2),
            grid=(self.pieces * self.shares, self.members), warmup=warmup,
        )  # fmt: skip
        return parts.sum(1) if not warmup else parts


class _Product(torch.autograd.Function):
    """x (T, M, N, D), weight (M, D, E), bias (M, E) or None -> (T, M, N, E)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply; compiles what the backward pass will launch beside it."""
        size = _Sizes(*x.shape, weight.shape[-1])
        rows, weight = _rows_of(x), _aligned(weight)
        bias = None if bias is None else _aligned(bias)
        out = x.new_empty(size.members, size.steps, size.sequences, size.outputs)
        calls: list[Any] = [lambda: size.multiply(rows, weight, bias, out, True)]
        if ctx.needs_input_grad[0]:
            calls.append(lambda: size.input_gradient(out, weight, rows, True))
        if any(ctx.needs_input_grad[1:]):
            calls.append(lambda: size.parameter_gradient(rows, out, True))
        key = ("linear", *size[3:], bias is None, *ctx.needs_input_grad, out.device)
        compile_together(key, calls)
        size.multiply(rows, weight, bias, out)
        ctx.save_for_backward(rows.tensor, weight)
        ctx.size = size
        return out.transpose(0, 1)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients that are asked for."""
        x, weight = ctx.saved_tensors
        needs, g = ctx.needs_input_grad, _aligned(grad.transpose(0, 1))
        dx = both = None
        if needs[0]:
            # Dense memory in the order of x's own axes.
            dx = torch.empty_like(x)
            ctx.size.input_gradient(g, weight, _rows_of(dx))
        if any(needs[1:]):
            both = ctx.size.parameter_gradient(_rows_of(x), g)
        return (
            dx,
            both[:, :-1] if both is not None and needs[1] else None,
            both[:, -1] if both is not None and needs[2] else None,
        )


def _aligned(tensor: Tensor) -> Tensor:
    """Return it contiguous and where the kernels may read four numbers at once."""
    if not tensor.is_contiguous():
        return tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


def _rows_of(tensor: Tensor) -> _Rows:
    """Return (T, M, N, width) as rows; copies only if rows aren't whole or not aligned."""
    tensor, width = inner_contiguous(tensor), tensor.shape[-1]
    # An axis of one has any stride.
    by = [s if n > 1 else 0 for n, s in zip(tensor.shape, strides(tensor), strict=False)]
    if any(stride % width for stride in by) or tensor.data_ptr() % _ALIGNMENT:
        return _rows_of(tensor.clone(memory_format=torch.contiguous_format))
    return _Rows(tensor, by[0] // width, by[1] // width)
