"""The values of given uniforms, checked where looking at them costs next to nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfrnn.functional.autocast import tracing, transforming


def check_uniforms(uniforms: Any) -> None:
    """Refuse uniforms that aren't in [0, 1); they would choose the first or last particle silently.

    Values are looked at on the CPU in eager mode alone. On a GPU that would make the host wait for
    the device, which a graph under capture forbids; a compiled, exported, traced or transformed
    call has no values to look at. There wrong uniforms are taken as the nearest right ones.

    Args:
        uniforms: a tensor of any shape; what is no tensor isn't looked at.

    Raises:
        ValueError: a number below 0, not below 1, or NaN. In half precision 1 itself passes: it is
            what a number just below 1 rounds to.
    """
    if not _has_values(uniforms):
        return
    low, high = (edge.item() for edge in torch.aminmax(uniforms.detach()))
    half = uniforms.dtype in (torch.float16, torch.bfloat16)
    if not (low >= 0 and (high < 1 or (half and high == 1))):  # so written, NaN is refused too
        raise ValueError(
            f"uniforms: expected numbers in [0, 1), got numbers from {low:g} to {high:g}; draw "
            "them with torch.rand"
        )


def _has_values(uniforms: Any) -> bool:
    if torch.compiler.is_compiling() or tracing() or transforming():
        return False
    # Not a subclass: a fake tensor says "cpu", too.
    return type(uniforms) is Tensor and uniforms.device.type == "cpu" and uniforms.numel() > 0
