"""Dependent launches, on Hopper and later: a launch begins while the one before it ends.

A filter is a chain of short kernels, each waiting for all of the one before. With CUDA's
programmatic dependent launch a kernel's programs may start as soon as all of the previous one's
have: they compute addresses, read what no step changes, draw their noise, and only then wait for
the previous launch to end, whose writes they then see. What a previous launch writes is read after
the wait, and nothing is written before it; so numbers don't change, only times do.

The first launch of a chain begins as any kernel does, after everything before it. Later ones may
therefore read, before their wait, whatever was finished when the chain began.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from pfrnn.kernels.ground import interpreted

# Compute capability from which the hardware can.
_HOPPER = 90


@triton.jit
def launch_dependents(DEPENDENT: tl.constexpr):
    """Allow the next launch's programs to start once all of this one's have come here."""
    if DEPENDENT:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous(DEPENDENT: tl.constexpr):
    """Wait until the previous launch has ended and its writes are seen."""
    if DEPENDENT:
        gdc_wait()


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a GPU has; 0 where there is none."""
    if device.type != "cuda" or interpreted():
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def has_dependent_launch(device: torch.device) -> bool:
    """Whether kernels for ``device`` may be launched so.

    Without a GPU the answer is for the one that kernels are compiled for; no, where there is none.
    """
    if interpreted():
        return False
    if device.type == "cuda":
        return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)
    try:
        target = triton.runtime.driver.active.get_current_target()
    except RuntimeError:  # no driver is active
        return False
    return bool(target.backend == "cuda" and target.arch >= _HOPPER)
