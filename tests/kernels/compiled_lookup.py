"""Compile a population's embeddings, for a GPU that isn't there.

``python -m tests.kernels.compiled_lookup 90 100`` (compute capability, width) prints one JSON line:
for each kernel its registers and bytes that a thread spills; the number of programs after one
gradient; and after those of other batches, populations and vocabularies.
"""

from __future__ import annotations

import json
import sys

import torch

from bench.compiled import machine_program
from pfrnn.kernels.lookup import population_embed
from tests.kernels.compiled_only import compile_only, zeroed


def step(steps: int, members: int, sequences: int, vocabulary: int, width: int) -> None:
    """Take rows, and the gradient."""
    weight = torch.zeros(members, vocabulary, width, requires_grad=True)
    tokens = torch.zeros(steps, members, sequences, dtype=torch.int64)
    out = population_embed(tokens, weight)
    out.backward(torch.zeros_like(out))


def main(capability: str, width: str) -> None:
    programs = compile_only(int(capability))
    zeroed()
    step(10, 2, 64, 50, int(width))
    once, found = len(programs), {}
    for name, kernel in programs.items():
        one = machine_program(kernel.asm["cubin"])
        found[name.split()[0]] = [one["registers"], one["spill_stores"] + one["spill_loads"]]
    for sizes in ((10, 3, 61, 7), (400, 1, 64, 50), (1, 1, 1, 1), (7, 72, 3, 16)):
        step(*sizes, int(width))
    print(json.dumps([found, once, len(programs)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
