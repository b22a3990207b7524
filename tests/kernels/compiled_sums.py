"""Compile a population's sums, for a GPU that isn't there.

``python -m tests.kernels.compiled_sums 90 4`` (compute capability, columns) prints one JSON line:
for each kernel its registers and bytes that a thread spills; the number of programs after one sum
of many values; and after sums of other batches, populations and layouts.
"""

from __future__ import annotations

import json
import sys

import torch

from bench.compiled import machine_program
from pfrnn.kernels.sums import add_bias, population_sums
from tests.kernels.compiled_only import compile_only, zeroed


def step(steps: int, members: int, sequences: int, columns: int) -> None:
    """Sum a loss where there is one column, else a bias's gradient."""
    if columns == 1:
        population_sums(torch.zeros(steps, members, sequences))
        population_sums(torch.zeros(members, steps, sequences).transpose(0, 1))
        return
    bias = torch.zeros(members, columns, requires_grad=True)
    add_bias(torch.zeros(steps, members, sequences, 8, columns), bias).sum().backward()


def main(capability: str, columns: str) -> None:
    programs = compile_only(int(capability))
    zeroed()
    step(10, 2, 640, int(columns))
    once, found = len(programs), {}
    for name, kernel in programs.items():
        one = machine_program(kernel.asm["cubin"])
        found[name.split()[0]] = [one["registers"], one["spill_stores"] + one["spill_loads"]]
    for steps, members, sequences in ((10, 3, 641), (400, 1, 64), (1, 1, 1), (7, 72, 3)):
        step(steps, members, sequences, int(columns))
    print(json.dumps([found, once, len(programs)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
