"""Compile a filter's losses and their gradients, for a GPU that isn't there.

``python -m tests.kernels.compiled_loss 90 30 1`` (compute capability, particles, columns) prints
one JSON line: for each kernel its registers and bytes that a thread spills; the number of programs
after one loss; and after losses of other batches and populations.
"""

from __future__ import annotations

import json
import sys

import torch

from bench.compiled import machine_program
from pfrnn.kernels.loss import Weights, filter_loss
from tests.kernels.compiled_only import compile_only, zeroed


def step(steps: int, members: int, sequences: int, particles: int, columns: int) -> None:
    """Both losses of a batch as it is gathered, with a mask, forwards and backwards."""
    size = (steps, members, sequences, particles)
    guesses = torch.zeros(*size, columns, requires_grad=True)
    log_weights = torch.zeros(size, requires_grad=True)
    target = torch.zeros(members, sequences, steps, columns).permute(2, 0, 1, 3)
    mask = torch.ones(members, sequences, steps, dtype=torch.bool).permute(2, 0, 1)
    filter_loss(guesses, log_weights, target, mask, Weights(1.0, 1.0)).sum().backward()


def main(capability: str, particles: str, columns: str) -> None:
    programs = compile_only(int(capability))
    zeroed()
    rest = (int(particles), int(columns))
    step(100, 12, 64, *rest)
    once, found = len(programs), {}
    for name, kernel in programs.items():
        one = machine_program(kernel.asm["cubin"])
        found[name.split()[0]] = [one["registers"], one["spill_stores"] + one["spill_loads"]]
    for sizes in ((100, 1, 64), (7, 36, 3), (1, 2, 1)):
        step(*sizes, *rest)
    print(json.dumps([found, once, len(programs)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
