"""A member's sums over time and sequences, which other code may compute."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from pfrnn.functional.handover import Handover

Sum = Callable[[Tensor], Any]
_SUMS = Handover("sums")


def sums(by: Sum) -> AbstractContextManager[None]:
    """Compute inside what :func:`member_sums` does for a population by another function.

    Args:
        by: called with a tensor (T, M, N); returns (M,), or ``NotImplemented`` for what it doesn't
            take.

    Example:
        >>> with sums(lambda x: x.new_zeros(x.shape[1])):
        ...     member_sums(torch.ones(2, 5, 3))
        tensor([0., 0., 0., 0., 0.])
    """
    return _SUMS.to(by)


def replaced() -> bool:
    """Whether another function computes the sums here."""
    return _SUMS.taken()


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
    found = _SUMS.result(x) if x.dim() == 3 else None
    return x.sum(0).sum(-1) if found is None else found
