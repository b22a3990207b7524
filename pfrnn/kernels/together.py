"""Compiling the kernels of a loop side by side, before the first of them is launched.

Triton compiles a kernel when it is first launched, one after the other; on a fresh machine a job
would wait for each in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import triton

_done: set[Hashable] = set()


def compile_together(key: Hashable, calls: Sequence[Callable[[], Any]]) -> None:
    """Compile several kernels, once a process.

    A kernel that can't be compiled is left to its launch, which raises; so is everything where
    this Triton can't compile beside others.

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
