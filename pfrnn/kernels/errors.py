"""What a kernel raises that can't be compiled for, or doesn't fit on, the card at hand."""

from __future__ import annotations

from triton.runtime.errors import TritonError as KernelError

__all__ = ["KernelError"]
