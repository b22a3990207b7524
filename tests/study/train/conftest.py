"""What several tests of training share."""

from __future__ import annotations

from contextlib import nullcontext

import pytest


@pytest.fixture
def _loop_alone(monkeypatch):
    """For loops that stand in for kernels, on CPU tensors: no kernel runs beside them.

    On a machine with a GPU the others are compiled for it, and refuse a CPU's memory.
    """
    from pfrnn.study.train.kernel_loop import KernelLoop

    monkeypatch.setattr(KernelLoop, "beside", lambda self: nullcontext())
