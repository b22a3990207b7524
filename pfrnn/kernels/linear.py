"""A population's products with stacked weights: a member's bits are those it has alone.

The library's batched products add in an order that goes by how many members there are, and the bias
is a second pass over the result. Here the order follows from a member's own sizes (T, N, D, E), and
each pass reads and writes its tensors once (:mod:`pfrnn.kernels.linear_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pfrnn.errors import ConfigError, suggestion
from pfrnn.kernels.linear_kernels import (
    add_shares_kernel,
    input_gradient_kernel,
    parameter_gradient_kernel,
    product_kernel,
)
from pfrnn.kernels.plan import inner_contiguous, padded_units, strides
from pfrnn.kernels.together import compile_together

# Wider inputs would be read in pieces, too; the networks' encoders are narrower.
MAX_INPUTS = 128
PRECISIONS = ("tf32x3", "ieee", "tf32")
# Programs a member that add up the parameters' gradients, where there are rows enough.
_PROGRAMS = 48
_BLOCK = 256
# Columns of a piece.
_COLUMNS = 64
# To what Triton assumes of a tensor that torch has allocated: a view may begin anywhere.
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


def fits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether the kernels take a product: float32, at most 128 inputs, none of the sizes zero.

    Args:
        x: as :func:`population_affine`'s; so are the others.
        weight: stacked, or the answer is no.
        bias: or None.
    """
    tensors = [x, weight] if bias is None else [x, weight, bias]
    return (
        weight.dim() == 3
        and x.dim() in (3, 4)
        and weight.shape[1] <= MAX_INPUTS
        and min(*x.shape, *weight.shape) > 0
        and all(one.dtype == torch.float32 and one.device == x.device for one in tensors)
        and not torch.is_autocast_enabled(x.device.type)
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    """What :func:`pfrnn.functional.linear.products` is given: sequences' products.

    A single step's are left to the library, which is as quick where rows are few.
    """
    if x.dim() != 4 or not fits(x, weight, bias):
        return NotImplemented
    return population_affine(x, weight, bias)


def population_affine(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, precision: str = "tf32x3"
) -> Tensor:
    """Apply ``x @ weight + bias``, each member its own, as :func:`pfrnn.functional.linear.affine`.

    Args:
        x: (T, M, N, D) or (M, N, D), D at most 128; copied unless its last two axes are contiguous
            and whole rows lie between times and members.
        weight: (M, D, E).
        bias: (M, E) or None.
        precision: of the factors: ``tf32x3`` (nearly float32's), ``ieee`` or ``tf32``; sums are
            float32.

    Returns:
        (T, M, N, E), a transposed view of (M, T, N, E); or (M, N, E).

    Gradients:
        Of all three, x's laid out as x; once differentiable.

    Raises:
        ConfigError: an unknown precision.
        ValueError: shapes or types that the kernels don't take (:func:`fits`).
    """
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision: expected one of {', '.join(PRECISIONS)}, got {precision!r}"
            + suggestion(precision, PRECISIONS)
        )
    if not fits(x, weight, bias) or not _agree(x, weight, bias):
        given = ", ".join(f"{tuple(t.shape)} {t.dtype}" for t in (x, weight, bias) if t is not None)
        raise ValueError(
            "expected float32 on one device: x (T, M, N, D) or (M, N, D) with D at most "
            f"{MAX_INPUTS}, weight (M, D, E) and bias (M, E), got {given}; use affine"
        )
    if x.dim() == 3:
        return _Product.apply(x.unsqueeze(0), weight, bias, precision).squeeze(0)
    return _Product.apply(x, weight, bias, precision)


def _agree(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    members, inputs, outputs = weight.shape
    whole = bias is None or bias.shape == (members, outputs)
    return x.shape[-3] == members and x.shape[-1] == inputs and whole


class _Product(torch.autograd.Function):
    """x (T, M, N, D), weight (M, D, E), bias (M, E) or None -> (T, M, N, E)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, precision: str
    ) -> Tensor:
        """Multiply; compiles what the backward pass will launch beside it."""
        ctx.set_materialize_grads(False)
        size = Sizes(*x.shape, weight.shape[-1], precision)
        rows, weight = rows_of(x), aligned(weight)
        bias = None if bias is None else aligned(bias)
        out = x.new_empty(size.members, size.steps, size.sequences, size.outputs)
        _compile(size, rows, weight, bias, out, ctx.needs_input_grad[:3])
        multiply(size, rows, weight, bias, out)
        ctx.save_for_backward(rows.tensor, weight)
        ctx.size = size
        return out.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients that are asked for."""
        if grad is None:
            return None, None, None, None
        x, weight = ctx.saved_tensors
        size, (first, second, third, _) = ctx.size, ctx.needs_input_grad
        g, rows = aligned(grad.transpose(0, 1)), rows_of(x)
        dx = dweight = dbias = None
        if first:
            # Dense memory in the order of x's own.
            dx = torch.empty_like(x)
            input_gradient(size, g, weight, rows_of(dx))
        if second:
            dweight = weight.new_empty(weight.shape)
        if third:
            dbias = weight.new_empty(size.members, size.outputs)
        if second or third:
            parameter_gradient(size, rows, g, dweight, dbias)
        return dx, dweight, dbias, None


def _compile(
    size: Sizes, x: Rows, weight: Tensor, bias: Tensor | None, out: Tensor, needs: Sequence[bool]
) -> None:
    """Have the kernels of both passes compiled side by side, before the first launch of a size."""
    calls: list[Callable[[], None]] = [lambda: multiply(size, x, weight, bias, out, True)]
    if needs[0]:
        calls.append(lambda: input_gradient(size, out, weight, x, True))
    if needs[1] or needs[2]:
        both = weight if needs[1] else None, bias if needs[2] else None
        calls.append(lambda: parameter_gradient(size, x, out, *both, True))
    key = (size.inputs, size.outputs, size.precision, bias is None, *needs, out.device)
    compile_together(("linear", *key), calls)


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
