"""What surrounds a call: autocast, torch.func's transforms, an export."""

from __future__ import annotations

import torch

# Whether torch.func (vmap, grad, ...) is transforming the call.
transforming = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def autocasting(device: torch.device) -> bool:
    """Say whether autocast is on for a device; tensors without numbers (meta) have none.

    Example:
        >>> autocasting(torch.device("cpu")), autocasting(torch.device("meta"))
        (False, False)
    """
    known = torch.amp.is_autocast_available(device.type)
    return bool(known and torch.is_autocast_enabled(device.type))


def exporting() -> bool:
    """Say whether torch.export or torch.onnx is recording the call."""
    return torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()
