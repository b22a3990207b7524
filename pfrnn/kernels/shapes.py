"""What the kernels take for granted of the tensors they read, checked before any is read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pfrnn.functional.types import Readout


def check_shapes(projected: Tensor, units: int, weights: Any, readout: Readout | None) -> None:
    """Refuse what a kernel would read out of bounds, or misread: nothing is broadcast inside.

    Args:
        projected: (T, M, N, P).
        units: H.
        weights: a PFLSTMWeights or PFGRUWeights.
        readout: a linear head, or None.

    Raises:
        ValueError: another shape or type than the kernels'; says which.
    """
    gru = hasattr(weights, "candidate")
    blocks = 4 if gru else 5
    _check("projected input", projected, (*projected.shape[:3], blocks * units + 1))
    members = projected.shape[1]
    expected = {
        "recurrent": (units, (3 if gru else 5) * units),
        "candidate": (units, units),
        "observation": (units,),
        "norm_gain": (units,),
        "norm_shift": (units,),
    }
    for name, shape in expected.items():
        _check(f"weights.{name}", getattr(weights, name, None), (members, *shape))
    if readout is not None:
        outputs = readout.weight.shape[-1]
        _check("readout.weight", readout.weight, (members, units, outputs))
        _check("readout.bias", readout.bias, (members, outputs))


def _check(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    if tensor is None:
        return
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name}: the fused kernels expect the shape {shape} (members first), got"
            f" {tuple(tensor.shape)}; expand it"
        )
    if tensor.dtype != torch.float32:
        raise ValueError(
            f"{name}: the fused kernels expect float32, got {tensor.dtype}; use run_pf"
        )
