"""Hand-written backwards: gradients, and a clear end where their own gradient is asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

_TWICE: ContextVar[bool] = ContextVar("twice", default=False)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Compute steps inside by the plain code, whose gradients have gradients: slower.

    Outside, asking for the gradient of a gradient (``create_graph=True``) is a RuntimeError, but
    where torch.func or torch.compile see the plain code anyway. Each thread has its own.

    Example:
        >>> with twice_differentiable():
        ...     wants_second_derivatives()
        True
    """
    token = _TWICE.set(True)
    try:
        yield
    finally:
        _TWICE.reset(token)


def wants_second_derivatives() -> bool:
    """Whether this is inside :func:`twice_differentiable`."""
    return _TWICE.get()


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the backward of a ``torch.autograd.Function`` that has no second derivative.

    torch's own ``once_differentiable`` puts an error at the end of the new graph, which
    ``torch.autograd.grad`` with inputs never reaches: it would return zeros, or what other ways
    through the graph give. Here asking for that graph is the error.

    Raises:
        RuntimeError: called with ``create_graph=True``.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: this step's backward is written by hand and has no second "
                "derivative; compute the forward pass inside "
                "pfrnn.functional.twice_differentiable() (on a GPU's fused path with "
                "PFRNN_KERNELS=plain), or use torch.func, which sees the plain code"
            )
        return backward(ctx, *gradients)

    return checked
