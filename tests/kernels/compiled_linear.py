"""Compile a population's products and their gradients, for a GPU that isn't there.

``python -m tests.kernels.compiled_linear 90 64 321`` (compute capability, inputs, outputs) prints
one JSON line: for each kernel its bytes of shared memory, registers, and bytes that a thread
spills; the number of programs after one product; and after others of other batches, populations
and memory layouts; descriptors of shared memory that ptxas got wrong.
"""

from __future__ import annotations

import json
import sys

import torch

from bench.compiled import machine_program
from pfrnn.kernels.linear import population_affine
from tests.kernels.compiled_only import compile_only, wrong_descriptors, zeroed


def step(steps: int, members: int, sequences: int, inputs: int, outputs: int, first: bool) -> None:
    """Multiply forwards and backwards; memory of x with members ``first`` or time."""
    sizes = (members, steps) if first else (steps, members)
    x = torch.zeros(*sizes, sequences, inputs)
    x = (x.transpose(0, 1) if first else x).requires_grad_()
    weight = torch.zeros(members, inputs, outputs, requires_grad=True)
    bias = torch.zeros(members, outputs, requires_grad=True)
    population_affine(x, weight, bias).sum().backward()


def main(capability: str, inputs: str, outputs: str) -> None:
    programs = compile_only(int(capability))
    zeroed()
    sizes = (int(inputs), int(outputs))
    step(4, 2, 16, *sizes, True)
    once, found = len(programs), {}
    for name, kernel in programs.items():
        one = machine_program(kernel.asm["cubin"])
        found[name.split()[0]] = [
            kernel.metadata.shared, one["registers"], one["spill_stores"] + one["spill_loads"],
        ]  # fmt: skip
    # Odd last batches, single members, sequences and steps.
    for first in (False, True):
        for steps, members, sequences in ((4, 2, 3), (5, 1, 16), (1, 3, 1), (1, 1, 7)):
            step(steps, members, sequences, *sizes, first)
    print(json.dumps([found, once, len(programs), wrong_descriptors(programs)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
