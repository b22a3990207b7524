"""Compile a population's update, for a GPU that isn't there.

``python -m tests.kernels.compiled_update 90`` (compute capability) prints one JSON line: for each
kernel its registers and bytes that a thread spills; the number of programs after one update; and
after updates of other populations and networks.
"""

from __future__ import annotations

import json
import sys

import torch

from bench.compiled import machine_program
from pfrnn.functional.sums import sums
from pfrnn.kernels.sums import total
from pfrnn.study.train.flat import Flat, FlatRMSprop
from pfrnn.study.train.optimiser import Hyper
from tests.kernels.compiled_only import compile_only, zeroed


def step(members: int, *sizes: int) -> None:
    """Update a network of such tensors, of which L2 acts on all."""
    stack = {str(size): torch.zeros(members, size) for size in sizes}
    hyper = Hyper(*(torch.ones(members) for _ in range(3)))
    optimiser = FlatRMSprop(Flat(stack), Flat(stack), hyper)
    with sums(total):
        alive = torch.ones(members, dtype=torch.bool)
        optimiser.write(optimiser.update(stack, 0.99, 1e-8, alive))


def main(capability: str) -> None:
    programs = compile_only(int(capability))
    zeroed()
    step(3, 64, 1000)
    once, found = len(programs), {}
    for name, kernel in programs.items():
        one = machine_program(kernel.asm["cubin"])
        found[name.split()[0]] = [one["registers"], one["spill_stores"] + one["spill_loads"]]
    for sizes in ((1, 64), (36, 5, 7, 100_000), (2, 16, 33)):
        step(*sizes)
    print(json.dumps([found, once, len(programs)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
