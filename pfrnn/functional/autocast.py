"""Whether autocast is on, also for devices that it doesn't know."""

from __future__ import annotations

import torch


def autocasting(device: torch.device) -> bool:
    """Say whether autocast is on for a device; tensors without numbers (meta) have none.

    Example:
        >>> autocasting(torch.device("cpu")), autocasting(torch.device("meta"))
        (False, False)
    """
    known = torch.amp.is_autocast_available(device.type)
    return bool(known and torch.is_autocast_enabled(device.type))
