"""Products with weights that may carry leading (member) axes, and the activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from pfrnn.errors import ConfigError
from pfrnn.functional.arguments import ACTIVATIONS

LEAKY_SLOPE = 0.01

Product = Callable[[Tensor, Tensor, Tensor | None], Any]
_OVERRIDE: ContextVar[Product | None] = ContextVar("products", default=None)


@contextmanager
def products(by: Product) -> Iterator[None]:
    """Override :func:`affine` for populations inside a ``with`` block, in this thread.

    torch.compile sees the plain product: a graph that it made would keep the override.

    Args:
        by: called with ``affine``'s arguments where the weight has one leading axis; returns the
            result, or ``NotImplemented`` for what it doesn't take.

    Example:
        >>> with products(lambda x, weight, bias: x.new_zeros(())):
        ...     affine(torch.ones(2, 5, 3), torch.ones(2, 3, 4))
        tensor(0.)
    """
    token = _OVERRIDE.set(by)
    try:
        yield
    finally:
        _OVERRIDE.reset(token)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply ``x @ weight + bias``; axes of ``x`` in front of the weight's own count as time.

    The time axes are folded into the rows, so that a member's weight is read by one product for
    all steps instead of being copied for each.

    Args:
        x: (T..., *lead, N, in).
        weight: (*lead, in, out).
        bias: (*lead, out) or None.

    Returns:
        (T..., *lead, N, out). For weights with leading axes and a time axis the result is a
        transposed view. Inside :func:`products` another function may have made it.

    Example:
        >>> affine(torch.ones(7, 2, 5, 3), torch.ones(2, 3, 4)).shape
        torch.Size([7, 2, 5, 4])
    """
    lead = weight.dim() - 2
    extra = x.dim() - weight.dim()
    if lead == 1 and not torch.compiler.is_compiling() and (by := _OVERRIDE.get()) is not None:
        found = by(x, weight, bias)
        if found is not NotImplemented:
            return cast(Tensor, found)
    if lead == 0 or extra <= 0:
        if bias is None:
            return x @ weight
        return _plain(x, weight, bias) if lead == 0 else x @ weight + bias.unsqueeze(-2)
    times = x.shape[:extra]
    rows = x.shape[-2]
    # (T..., *lead, N, in) -> (*lead, T..., N, in) -> (*lead, T * N, in)
    order = [*range(extra, extra + lead), *range(extra), extra + lead, extra + lead + 1]
    folded = x.permute(order).flatten(lead, lead + extra)
    product = folded @ weight
    if bias is not None:
        product = product + bias.unsqueeze(-2)
    unfolded = product.view(*product.shape[:lead], *times, rows, product.shape[-1])
    back = [*range(lead, lead + extra), *range(lead), lead + extra, lead + extra + 1]
    return unfolded.permute(back)


def _plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    # One model: addmm adds the bias inside the product (no temporary).
    if x.dim() == 2:
        return torch.addmm(bias, x, weight)
    return torch.addmm(bias, x.flatten(0, -2), weight).view(*x.shape[:-1], weight.shape[-1])


def activate(x: Tensor, name: str) -> Tensor:
    """Apply the candidate's activation: ``relu``, ``leaky_relu`` (slope 0.01) or ``tanh``.

    Raises:
        ConfigError: another name.
    """
    if name == "relu":
        return torch.relu(x)
    if name == "leaky_relu":
        return F.leaky_relu(x, LEAKY_SLOPE)
    if name == "tanh":
        return tanh(x)
    raise ConfigError(f"activation: expected one of {', '.join(ACTIVATIONS)}, got {name!r}")


def tanh(x: Tensor) -> Tensor:
    """Return the hyperbolic tangent; for float32 on a CPU as 2 sigmoid(2 x) - 1.

    That is three times faster there.

    The two differ by at most 1.2e-7, one unit in the last place of values near 1.
    """
    if x.dtype == torch.float32 and x.device.type == "cpu":
        return torch.sigmoid(x + x) * 2.0 - 1.0
    return torch.tanh(x)


def split(x: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Split the last axis into blocks of the given sizes.

    One split has one concatenation as its backward; slices would each fill a zero tensor of the
    whole size and add them up.
    """
    return torch.split_with_sizes(x, sizes, dim=-1)
