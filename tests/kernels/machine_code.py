"""Looks in a kernel's machine code for a descriptor that ptxas made from the wrong register.

Tensor cores read a tile of shared memory by a 64-bit descriptor: 14 bits of its address below, its
shape above. PTX adds the two. Where rows are 64 or 32 bytes the upper half is a negative number,
and ptxas may lose the zero that it has to be added to: some other register's value then lands in
the stride, and the product reads outside the block's memory.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from triton import knobs

INSTRUCTION = re.compile(
    r"\s+/\*([0-9a-f]+)\*/\s+(?:@!?\S+\s+)?([A-Z0-9.]+[A-Z0-9a-z_.]*)\s+(.*?) ;"
)
# Swizzled in 128, 64 or 32 bytes (the two upper bits), strides far below 2^14 units of 16 bytes.
UPPER_HALF = re.compile(r"(0x4|-0x7|-0x3)[0-9a-f]{7}$")


def disassembled(cubin: Path) -> str:
    """Return the machine code as Triton's bundled nvdisasm prints it."""
    command = [knobs.nvidia.nvdisasm.path, "-c", str(cubin)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def lost_zeros(code: str) -> list[str]:
    """Return the instructions that add a descriptor's upper half to what isn't known to be zero.

    Registers are followed in the order of the text; a kernel branches over few instructions only.
    """
    zero = {"URZ": True}
    found = []
    for place, name, operands in INSTRUCTION.findall(code):
        parts = [part.strip() for part in operands.split(",")]
        if name == "UIADD3.X" and UPPER_HALF.match(parts[2]) and not zero.get(parts[1], False):
            found.append(f"{place} {name} {operands}")
        if re.match(r"UR\d+$", parts[0]):
            number = int(parts[0][2:])
            zero[parts[0]] = name == "UMOV" and parts[1] == "URZ"
            if ".64" in name or "WIDE" in name:
                zero[f"UR{number + 1}"] = False
    return found
