"""What surrounds a call: autocast, also for devices it doesn't know; torch.func's transforms."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

# Whether torch.func (vmap, grad, ...) is transforming the call: its tensors then have no values.
transforming = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def forward_mode() -> bool:
    """Whether torch.autograd.forward_ad may carry tangents, which hand-written steps don't."""
    return getattr(forward_ad, "_current_level", -1) >= 0


def tracing() -> bool:
    """Whether torch.jit.trace is recording the call: sizes of tensors are then tensors."""
    found: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return found


def autocasting(device: torch.device) -> bool:
    """Say whether autocast is on for a device; tensors without numbers (meta) have none.

    Example:
        >>> autocasting(torch.device("cpu")), autocasting(torch.device("meta"))
        (False, False)
    """
    known = torch.amp.is_autocast_available(device.type)
    return bool(known and torch.is_autocast_enabled(device.type))
