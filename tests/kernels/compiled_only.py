"""Compile what a training step launches, for a GPU that isn't there.

``python -m tests.kernels.compiled_only pf_lstm 90 tf32 30 64 1`` (cell, compute capability,
precision, particles, units, outputs of a head inside the kernels: 0 without one; then "crowded" for
a large population's tuning, which the code doesn't choose without a card) runs a step of a small
population on the CPU with every launch replaced by Triton's own warm-up, which compiles with its
bundled ptxas and launches nothing. Prints one JSON line: the bytes of shared memory of each
kernel; the number of programs after that step, and after steps of other batches and populations;
kernels that may begin before the launch in front of them has ended.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from pfrnn.functional.types import FilterSwitches, Readout
from pfrnn.kernels.noise import noise_key
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.kernels.tuning import CROWDED, Tuning
from tests.kernels.filter_cases import Case, draw, read_out

STEPS, MEMBERS, SEQUENCES, PARTICLES = 2, 2, 4, 30


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


def compile_only(capability: int) -> dict[str, Any]:
    """Replace launches by compilations for a capability (90 for 9.0); returns the programs."""
    driver.set_active(Absent(capability))
    run = JITFunction.run
    programs: dict[str, Any] = {}

    def compiled(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        # One that is compiled beside others isn't there yet; its own launch follows.
        if hasattr(kernel, "metadata"):
            programs[f"{self.fn.__name__} {kernel.metadata.hash}"] = kernel
        # Nothing that could be launched again.

    JITFunction.run = compiled
    return programs


def shared_memory(programs: dict[str, Any]) -> dict[str, int]:
    """The most that any program of each kernel needs."""
    found: dict[str, int] = {}
    for name, kernel in programs.items():
        kind = name.split()[0]
        found[kind] = max(found.get(kind, 0), kernel.metadata.shared)
    return found


def dependent(programs: dict[str, Any]) -> list[str]:
    """Kernels of which a program may begin before the launch in front of it has ended.

    Raises:
        ValueError: one that begins early doesn't wait, or one that waits begins like any other.
    """
    found = set()
    for name, kernel in programs.items():
        begins = bool(kernel.metadata.launch_pdl)
        text = kernel.asm["ptx"]
        for word in ("griddepcontrol.wait", "griddepcontrol.launch_dependents"):
            if (word in text) != begins:
                raise ValueError(f"{name}: launched early is {begins}, but not so {word}")
        if begins:
            found.add(name.split()[0])
    return sorted(found)


def zeroed() -> None:
    """Nothing is written, so that what is read must be in range: ancestors are indices."""
    torch.empty = torch.zeros
    torch.Tensor.new_empty = torch.Tensor.new_zeros


def step(
    gru: bool, members: int, sequences: int, precision: str, units: int, outputs: int,
    particles: int = PARTICLES, tuning: Tuning | None = None,
) -> None:  # fmt: skip
    """A training step's launches: projected inputs lie as a population's do, members first."""
    drawn = draw(Case(gru, STEPS, members, sequences, particles, units, "cpu"))
    weights = type(drawn.weights)(
        *(None if value is None else value.requires_grad_() for value in drawn.weights)
    )
    projected = drawn.projected.transpose(0, 1).contiguous().transpose(0, 1)
    key = noise_key(list(range(members)), 1, "cpu")
    readout = Readout(read_out(drawn, outputs).weight.requires_grad_()) if outputs else None
    output = run_pf_fused(
        projected.requires_grad_(), drawn.state, key, key, weights, FilterSwitches(),
        precision=precision, particles=readout is None, readout=readout, tuning=tuning,
    )  # fmt: skip
    found = output.hidden if output.read is None else output.read
    (found.sum() + output.log_weights.sum()).backward()


def main(
    cell: str, capability: str, precision: str, particles: str, units: str, outputs: str,
    choice: str = "own",
) -> None:  # fmt: skip
    programs = compile_only(int(capability))
    zeroed()
    gru = cell == "pf_gru"
    tuning = Tuning(**CROWDED) if choice == "crowded" else None
    rest = (precision, int(units), int(outputs), int(particles), tuning)
    step(gru, MEMBERS, SEQUENCES, *rest)
    once = len(programs)
    # An odd last batch; one whose strides are multiples of 16; a single member; an odd number.
    for members, sequences in ((MEMBERS, 3), (MEMBERS, 8), (1, SEQUENCES), (3, 5)):
        step(gru, members, sequences, *rest)
    print(json.dumps([shared_memory(programs), once, len(programs), dependent(programs)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
