"""Computations that other code (kernels) may take over inside a ``with`` block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor


class Handover:
    """One computation's takers, a thread's own.

    torch.compile sees the plain computation: a graph that it made would keep whoever took over.

    Args:
        name: of the computation.

    Example:
        >>> doubled = Handover("doubled")
        >>> with doubled.to(lambda x: x * 2 if x.dim() else NotImplemented):
        ...     doubled.taken(), doubled.result(torch.ones(2)), doubled.result(torch.ones(()))
        (True, tensor([2., 2.]), None)
        >>> doubled.taken(), doubled.result(torch.ones(2))
        (False, None)
    """

    def __init__(self, name: str) -> None:
        self._by: ContextVar[Callable[..., Any] | None] = ContextVar(name, default=None)

    @contextmanager
    def to(self, by: Callable[..., Any]) -> Iterator[None]:
        """Let ``by`` compute inside; it returns ``NotImplemented`` for what it doesn't take."""
        token = self._by.set(by)
        try:
            yield
        finally:
            self._by.reset(token)

    def taken(self) -> bool:
        """Whether somebody computes here."""
        return not torch.compiler.is_compiling() and self._by.get() is not None

    def result(self, *arguments: Any) -> Tensor | None:
        """Return what the taker makes of the arguments; None where nobody takes them."""
        if torch.compiler.is_compiling():
            return None
        by = self._by.get()
        found = NotImplemented if by is None else by(*arguments)
        return found if isinstance(found, Tensor) else None
