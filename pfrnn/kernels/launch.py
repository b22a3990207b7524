"""Launching kernels: compiled side by side before the first launch, and again in few steps.

A launch through Triton's front end takes some 100 microseconds on the host: every argument is
looked at to find the compiled program. The steps of a loop over time differ in a few numbers only,
so the program that the first of a kind found is launched again with those numbers replaced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.errors import TritonError as KernelError
from triton.runtime.jit import JITFunction

__all__ = ["KernelError", "Repeated", "compile_together"]

_done: set[Hashable] = set()


def compile_together(key: Hashable, calls: Sequence[Callable[[], Any]]) -> None:
    """Compile several kernels side by side, once a process.

    Triton compiles a kernel when it is first launched, one after the other. A kernel that can't be
    compiled is left to its launch, which raises; so is everything where this Triton can't compile
    beside others.

    Args:
        key: what the compiled programs depend on.
        calls: each asks Triton for one program (``warmup=True``) and launches nothing.
    """
    mode = getattr(triton, "AsyncCompileMode", None)
    if mode is None or key in _done:
        return
    _done.add(key)
    with ThreadPoolExecutor(len(calls)) as pool, mode(pool, ignore_errors=True):
        for call in calls:
            call()


class Repeated:
    """One kernel's launches in a run.

    Args:
        kernel: a ``triton.jit`` function.
        grid: of every launch.
        fixed: arguments that all launches share; tensors must live as long as this.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], fixed: dict[str, Any]) -> None:
        self._kernel, self._grid, self._fixed = kernel, grid, fixed
        self._found: dict[Hashable, tuple[Callable[..., None], list[Any], list[int]]] = {}

    def compile(self, kind: dict[str, Any], **numbers: int) -> None:
        """Ask Triton for the program of a kind; launches nothing."""
        self._kernel.run(**self._fixed, **kind, **numbers, grid=self._grid, warmup=True)

    def __call__(self, kind: dict[str, Any], **numbers: int) -> None:
        """Launch.

        Args:
            kind: compile-time arguments and launch options that differ between launches.
            numbers: integers that differ between launches; the kernel mustn't specialise on them.
        """
        key = tuple(kind.values())
        if key in self._found:
            launch, values, places = self._found[key]
            for place, number in zip(places, numbers.values(), strict=True):
                values[place] = number
            launch(*values)
            return
        given = {**self._fixed, **kind, **numbers}
        program = self._kernel.run(**given, grid=self._grid, warmup=False)
        if isinstance(self._kernel, JITFunction) and hasattr(program, "function"):
            names = self._kernel.arg_names
            # The launcher takes addresses, too, and then has nothing to look up.
            values = [_address(given[name]) for name in names]
            launch = functools.partial(
                program.run, *(*self._grid, 1, 1)[:3], torch.cuda.current_stream().cuda_stream,
                program.function, program.packed_metadata, None, None, None,
            )  # fmt: skip
            self._found[key] = (launch, values, [names.index(name) for name in numbers])


def _address(value: Any) -> Any:
    return value.data_ptr() if isinstance(value, Tensor) else value
