"""A member's sums over time and sequences, which other code may compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

Sum = Callable[[Tensor], Any]
_BY: ContextVar[Sum | None] = ContextVar("sums", default=None)


@contextmanager
def sums(by: Sum) -> Iterator[None]:
    """Compute inside what :func:`member_sums` does for a population by another function.

    Args:
        by: called with a tensor (T, M, N); returns (M,), or ``NotImplemented`` for what it doesn't
            take.

    Example:
        >>> with sums(lambda x: x.new_zeros(x.shape[1])):
        ...     member_sums(torch.ones(2, 5, 3))
        tensor([0., 0., 0., 0., 0.])
    """
    token = _BY.set(by)
    try:
        yield
    finally:
        _BY.reset(token)


def replaced() -> bool:
    """Whether another function computes the sums here."""
    return not torch.compiler.is_compiling() and _BY.get() is not None


def member_sums(x: Tensor) -> Tensor:
    """Sum over the first and the last axis.

    Args:
        x: (T, ..., N).

    Returns:
        (...). A library's order of adding may go by how many values are left: inside :func:`sums`
        it is the other function's.

    Example:
        >>> member_sums(torch.ones(2, 5, 3))
        tensor([6., 6., 6., 6., 6.])
    """
    if x.dim() == 3 and replaced():
        by = _BY.get()
        found: Any = NotImplemented if by is None else by(x)
        if isinstance(found, Tensor):
            return found
    return x.sum(0).sum(-1)
