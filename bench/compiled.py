"""What a fused kernel's machine program needs: registers, spills, shared memory. Needs no GPU."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from triton import knobs

from tests.kernels.machine_code import INSTRUCTION, disassembled, lost_zeros


class Multiprocessor(NamedTuple):
    """What blocks share (CUDA programming guide, "compute capabilities").

    Attributes:
        shared: bytes of shared memory, for all blocks.
        warps: at most.
        blocks: at most.
        block_shared: bytes of shared memory that one block may have.
        cache: bytes of shared memory and L1 cache together.
    """

    shared: int
    warps: int
    blocks: int
    block_shared: int
    cache: int


MULTIPROCESSORS = {
    80: Multiprocessor(164 * 1024, 64, 32, 163 * 1024, 192 * 1024),
    89: Multiprocessor(100 * 1024, 48, 24, 99 * 1024, 128 * 1024),
    90: Multiprocessor(228 * 1024, 64, 32, 227 * 1024, 256 * 1024),
}
# Bytes of shared memory that each block costs besides its own.
RESERVED = 1024


def spilled(code: str, name: str) -> int:
    """Bytes that a thread moves to (STL) or from (LDL) local memory, as far as it is text.

    >>> spilled("  /*0010*/  @P0 STL.64 [R1+0x8], R2 ;  /*0020*/  STL [R1], R4 ;", "STL")
    12
    """
    widths = [one.removeprefix(name) for _, one, _ in INSTRUCTION.findall(code)
              if one.split(".")[0] == name]  # fmt: skip
    return sum(16 if ".128" in width else 8 if ".64" in width else 4 for width in widths)


@functools.cache
def machine_program(cubin: bytes) -> dict[str, int]:
    """What a machine program needs of each thread, and how often ptxas got an address wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        code = disassembled(path)
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    usage = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout + done.stderr)
    if usage is None:
        raise ValueError(f"expected REG and STACK in what cuobjdump prints, got {done.stdout!r}")
    return {
        "registers": int(usage[1]),
        "stack": int(usage[2]),
        "spill_stores": spilled(code, "STL"),
        "spill_loads": spilled(code, "LDL"),
        "wrong": len(lost_zeros(code)),
    }
