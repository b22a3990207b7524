"""Tunings of the fused kernels for more particles or units, and a check of their numbers.

``bench/compiled.py`` found them, by few spills and many warps; ``bench/steps.py --sections shapes``
times them. The code's own (``pfrnn.kernels.plan.tuning_for``) is what was fastest on an H200. A
choice may depend on a layer's size, never on the number of members.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from bench.step_models import Size, beside, filter_loss, weights_of
from pfrnn.kernels.noise import NoiseKey
from pfrnn.kernels.plan import Tuning, tuning_for
from pfrnn.kernels.sequence import run_pf_fused

# Changes of the code's own tuning. What both sizes had before is that of smaller ones.
_BEFORE = {"particles": {"split": False}, "hidden": {
    "forward_warps": 4, "backward_warps": 4, "weight_warps": 4, "forward_registers": 168,
    "forward_inner": 128}}  # fmt: skip
_EIGHT = {"backward_warps": 8}
_WIDE = _BEFORE["hidden"] | _EIGHT | {"weight_warps": 8}
_SMALL = {"forward_rows": 32, "forward_warps": 8, "forward_registers": 128, "forward_inner": 64}
# The code's own tuning comes first, then that of before.
SHAPES: dict[tuple[str, int], list[dict[str, Any]]] = {
    ("particles", 60): [
        {},
        _BEFORE["particles"],
        _EIGHT | {"backward_inner": 32, "split": False},
        _EIGHT | {"backward_inner": 32},
        _EIGHT | {"backward_inner": 32, "forward_warps": 8, "forward_inner": 32,
                  "forward_registers": 128},
    ],
    ("hidden", 128): [
        {},
        _BEFORE["hidden"],
        _WIDE,
        _WIDE | _SMALL,
        _WIDE | _SMALL | {"split": True},
    ],
}  # fmt: skip
# Long enough for every kind of launch, too short for rounding to move many ancestors.
CHECKED = {"members": 2, "steps": 4}


def numbers(size: Size, tuning: Tuning) -> dict[str, Tensor]:
    """Losses and gradients of a small population, by name, on the same numbers every time."""
    torch.manual_seed(0)
    m = size.members
    leaves = {k: v.requires_grad_() for k, v in weights_of(size, m).items()}
    x = torch.randn(size.steps, m, size.batch, size.inputs, device="cuda")
    y = torch.randn(m, size.steps, size.batch, device="cuda")
    key = NoiseKey(torch.arange(m, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda"))
    run = functools.partial(run_pf_fused, precision=size.precision, tuning=tuning)
    with beside(size):
        loss = filter_loss(size, leaves, x, y, run, key, key)
    gradients = torch.autograd.grad(loss.sum(), list(leaves.values()))
    return {"loss": loss.detach(), **dict(zip(leaves, gradients, strict=True))}


def gradients(size: Size, tuning: Tuning) -> Tensor:
    """Gradient of all parameters, in one vector."""
    found = numbers(size, tuning)
    return torch.cat([value.flatten() for name, value in found.items() if name != "loss"])


def check(size: Size, tuning: Tuning) -> dict[str, Any]:
    """Compare a tuning's gradients with those of the code's own, and with themselves.

    Returns:
        ``gap``, the norm of the difference over the norm (sums in another order: of the size of
        the products' rounding, 1e-3 for TF32), and ``repeats``, whether the bits are the same
        twice, which they are unless threads race.
    """
    small = size._replace(**CHECKED)
    ours = tuning_for(small.particles, small.hidden)
    own, first, second = (gradients(small, one) for one in (ours, tuning, tuning))
    gap = (first - own).norm() / own.norm()
    return {"gap": float(gap), "repeats": torch.equal(first, second)}
