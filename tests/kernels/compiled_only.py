"""Compile what a training step launches, for a GPU that isn't there.

``python -m tests.kernels.compiled_only pf_lstm 90`` (cell, compute capability) runs a step of a
small population on the CPU with every launch replaced by Triton's own warm-up, which compiles with
its bundled ptxas and launches nothing. Prints one JSON line: kernel -> bytes of shared memory.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from pfrnn.functional.types import FilterSwitches
from pfrnn.kernels.noise import noise_key
from pfrnn.kernels.sequence import run_pf_fused
from tests.kernels.filter_cases import Case, draw

STEPS, MEMBERS, SEQUENCES, PARTICLES, UNITS = 2, 2, 4, 30, 64


class Absent:
    """As much of Triton's driver as compiling asks for."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only(capability: int) -> dict[str, int]:
    """Replace launches by compilations; returns the record that they fill."""
    driver.set_active(Absent(capability))
    run = JITFunction.run
    shared: dict[str, int] = {}

    def compiled(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        name = self.fn.__name__
        shared[name] = max(shared.get(name, 0), kernel.metadata.shared)
        return kernel

    JITFunction.run = compiled
    return shared


def zeroed() -> None:
    """Nothing is written, so that what is read must be in range: ancestors are indices."""
    torch.empty = torch.zeros
    torch.Tensor.new_empty = torch.Tensor.new_zeros


def main(cell: str, capability: str) -> None:
    shared = compile_only(int(capability))
    zeroed()
    gru = cell == "pf_gru"
    drawn = draw(Case(gru, STEPS, MEMBERS, SEQUENCES, PARTICLES, UNITS, "cpu"))
    weights = type(drawn.weights)(
        *(None if value is None else value.requires_grad_() for value in drawn.weights)
    )
    key = noise_key(list(range(MEMBERS)), 1, "cpu")
    output = run_pf_fused(
        drawn.projected.requires_grad_(), drawn.state, key, key, weights, FilterSwitches()
    )
    (output.hidden.sum() + output.log_weights.sum()).backward()
    print(json.dumps(shared))


if __name__ == "__main__":
    main(*sys.argv[1:])
