"""A core's loop over time in kernels, and the plain one for when a kernel fails."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pfrnn.functional.linear import products
from pfrnn.kernels.dispatch import Choice
from pfrnn.kernels.launch import KernelError
from pfrnn.kernels.linear import product

# How Triton reports a compiler that a signal ended.
_KILLED = re.compile(r"error code -\d+")

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class KernelLoop:
    """Puts a loop into a core, and takes it out again when it fails.

    A kernel that this card or this Triton can't compile or hold (each size is compiled on first
    use) makes the loop the core's own from there on, with a warning and the reason in run.json.

    Args:
        core: a core of :mod:`pfrnn.study.train.cores`.
        choice: the loop.
    """

    def __init__(self, core: Any, choice: Choice) -> None:
        self.core = core
        self.name, self.reason = choice.name, choice.reason
        self._own = core.run
        core.run = choice.run

    @property
    def fused(self) -> bool:
        """Whether the kernels still run."""
        return self.name == "fused"

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Have kernels compute the products beside the loop, while it is theirs."""
        if not self.fused:
            yield
            return
        with products(product):
            yield

    def attempt(self, work: Callable[[], Result]) -> Result:
        """Do a step's work, by the core's own loop when the kernels fail."""
        for last in (False, True):
            try:
                return work()
            except KernelError as error:
                # A signal that stops a job reaches its compiler too, which says nothing about the
                # kernel: the path stays what it is, and so does the resumed run.
                if last or not _KILLED.search(str(error)):
                    self._fall_back(error)
                    break
        return work()

    def _fall_back(self, error: KernelError) -> None:
        if not self.fused:
            raise error
        self.core.run = self._own
        first = str(error).strip().splitlines()[:1]
        why = f"the fused kernels failed ({type(error).__name__}: {' '.join(first)[:200]})"
        self.name, self.reason = "plain", why
        log.warning("%s; going on with the plain path", why)
