"""A population's products with stacked weights: a member's bits are those it has alone.

The library's batched products add in an order that goes by how many members there are, and the bias
is a second pass over the result. Here the order follows from a member's own sizes (T, N, D, E), and
each pass reads and writes its tensors once (:mod:`pfrnn.kernels.linear_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pfrnn.errors import ConfigError, suggestion
from pfrnn.functional.autocast import autocasting
from pfrnn.functional.first_order import first_order
from pfrnn.kernels.linear_run import (
    Rows,
    Sizes,
    aligned,
    input_gradient,
    multiply,
    parameter_gradient,
    rows_of,
)
from pfrnn.kernels.together import compile_together

# Wider inputs would have to be read in pieces; the networks' encoders are narrower.
MAX_INPUTS = 128
PRECISIONS = ("tf32x3", "ieee", "tf32")


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
        and not autocasting(x.device)
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
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, precision: str) -> Tensor:
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
    @first_order
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients that are asked for."""
        if grad is None:
            return None, None, None, None
        x, weight = ctx.saved_tensors
        size, (first, second, third, _) = ctx.size, ctx.needs_input_grad
        g, rows = aligned(grad.transpose(0, 1)), rows_of(x)
        dx = dweight = dbias = None
        if first:
            # Dense memory in the order of x's own axes.
            to = rows_of(torch.empty_like(x))
            input_gradient(size, g, weight, to)
            dx = to.tensor
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
