"""What the fused kernels' machine programs need: registers, spills, shared memory. Needs no GPU.

    python bench/compiled.py --sizes 30x64 60x64 30x128 --set backward_warps=8 backward_inner=32

Compiles with Triton's bundled ptxas the forward and the backward kernel's launches of the steps in
between (a first and a last step's differ) and the weights' gradient, and prints a table;
``--output`` writes it as JSON. Every size is compiled with the tuning of the code and with each
``--set`` (which may be given again). Columns:

- ``mflop``: what a program has the tensor cores do, a loop's turn counted once. More than another
  program with the same rows and ``inner`` means that warps compute the same;
- ``warps``: how many a multiprocessor can hold at once, of 64 on compute capability 9.0;
- ``local_kib``: the memory that these spill into; ``l1_kib``: what shared memory leaves of the
  cache in front of it;
- ``wrong``: places where ptxas lost part of an address (``tests/kernels/machine_code.py``): a
  tuning that has any must not run.

Nothing is timed: few spills and many warps are good signs, not more.
"""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import triton
from triton import knobs

from pfrnn.kernels.plan import PRECISIONS, Tuning, tuning_for
from pfrnn.study.files import write_json
from tests.kernels.compiled_only import compile_only, step, zeroed
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
REGISTERS, UNIT, RESERVED = 65536, 256, 1024


def resident(capability: int, registers: int, shared: int, warps: int) -> int:
    """Blocks that a multiprocessor can hold at once; 0 where one is already too large.

    Registers are given out in pieces of 256 a warp; each block costs another KiB of shared memory.

    >>> resident(90, 255, 64 * 1024, 4), resident(90, 168, 64 * 1024, 4)
    (2, 3)
    """
    one = MULTIPROCESSORS[capability]
    if shared > one.block_shared:
        return 0
    a_warp = -(-registers * 32 // UNIT) * UNIT
    by_registers = REGISTERS // a_warp // warps
    by_shared = one.shared // (shared + RESERVED)
    return min(by_registers, by_shared, one.warps // warps, one.blocks)


def in_between(name: str, options: dict[str, Any]) -> bool:
    """Whether a launch is one of those that a long sequence repeats."""
    if name == "forward_kernel":
        return not options["FIRST"] and not options["LAST"]
    if name != "backward_kernel":
        return name == "weight_gradient_kernel"
    # A step in two launches: the one ends where the other begins.
    t, steps = options["t"], options["T"]
    return bool(0 < t < steps)


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


def work(ptx: str, warps: int) -> int:
    """Floating-point operations of a program's products on tensor cores, as far as it is text.

    >>> work("wgmma.mma_async.sync.aligned.m64n32k8.f32", 8)
    65536
    """
    found = re.findall(r"(wgmma\.mma_async|mma\.sync)\.\S*?m(\d+)n(\d+)k(\d+)", ptx)
    # A warp group of four computes the one, a warp the other.
    return sum(
        2 * int(m) * int(n) * int(k) * (warps // 4 if name.startswith("wgmma") else warps)
        for name, m, n, k in found
    )


def figures(kernel: Any, capability: int) -> dict[str, Any]:
    """One program's row."""
    names = kernel.src.fn.arg_names
    constants = {names[place[0]]: value for place, value in kernel.src.constants.items()}
    ptx, warps, shared = kernel.asm["ptx"], kernel.metadata.num_warps, kernel.metadata.shared
    part = {(True, False): "start", (False, True): "finish"}.get(
        (constants.get("FIRST"), constants.get("LAST")), "whole"
    )
    row = {
        "kernel": kernel.src.fn.__name__.removesuffix("_kernel"),
        "part": part,
        "rows": constants["R" if "R" in constants else "BR"],
        "inner": constants["BK" if "BK" in constants else "BI"],
        "block_warps": warps,
        **machine_program(kernel.asm["cubin"]),
        "products": "wgmma" if "wgmma.mma_async" in ptx else "mma.sync",
        "mflop": round(work(ptx, warps) / 1e6, 2),
        "shared": shared,
    }
    blocks = resident(capability, row["registers"], shared, warps)
    left = MULTIPROCESSORS[capability].cache - blocks * (shared + RESERVED)
    return row | {
        "blocks": blocks,
        "warps": blocks * warps,
        "local_kib": blocks * warps * 32 * row["stack"] // 1024,
        "l1_kib": left // 1024,
    }


class Ask(NamedTuple):
    """What is compiled."""

    cell: str
    particles: int
    hidden: int
    precision: str
    outputs: int


def compiled(ask: Ask, changes: dict[str, Any], programs: dict[str, Any], capability: int
             ) -> list[dict[str, Any]]:  # fmt: skip
    """Rows of one size and tuning; a tuning that doesn't compile has one with its error."""
    programs.clear()
    head = {**ask._asdict(), "tuning": changes}
    tuning = tuning_for(ask.particles, ask.hidden)._replace(**changes)
    try:
        step(ask.cell == "pf_gru", 1, 4, ask.precision, ask.hidden, ask.outputs,
             ask.particles, tuning)  # fmt: skip
    except Exception as error:  # a tuning that fails is a result too
        return [head | {"error": f"{type(error).__name__}: {error}"[:300]}]
    rows = [head | figures(kernel, capability) for kernel in programs.values()]
    order = ["forward", "backward", "weight_gradient"]
    return sorted(rows, key=lambda row: (order.index(row["kernel"]), row["part"]))


COLUMNS = ("kernel", "part", "rows", "inner", "block_warps", "registers", "spill_stores",
           "spill_loads", "products", "mflop", "shared", "blocks", "warps",
           "local_kib", "l1_kib", "wrong")  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    size = f"{row['cell']} {row['particles']}x{row['hidden']} {row['precision']}"
    changes = " ".join(f"{k}={v}" for k, v in row["tuning"].items()) or "the code's own"
    cells = [row["error"]] if "error" in row else [str(row[name]) for name in COLUMNS]
    return " | ".join([size, changes, *cells])


def tuning_changes(words: list[str]) -> dict[str, Any]:
    """Read name=value pairs of a :class:`~pfrnn.kernels.plan.Tuning`.

    >>> tuning_changes(["split=true", "backward_registers=none", "backward_warps=8"])
    {'split': True, 'backward_registers': None, 'backward_warps': 8}
    """
    special = {"true": True, "false": False, "none": None}
    changes = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in Tuning._fields:
            raise ValueError(f"--set {word}: expected one of {', '.join(Tuning._fields)}")
        lower = value.lower()
        changes[name] = special[lower] if lower in special else int(value)
    return changes


def size(text: str) -> tuple[int, int]:
    """Read KxH, as 30x64."""
    particles, _, hidden = text.partition("x")
    return int(particles), int(hidden)


def main(arguments: list[str] | None = None) -> None:
    """Compile what is asked for; print and write it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", nargs="+", type=size, default=[(30, 64), (60, 64), (30, 128)],
                        metavar="KxH")  # fmt: skip
    parser.add_argument("--cells", nargs="+", choices=("pf_lstm", "pf_gru"), default=["pf_lstm"])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["tf32"])
    parser.add_argument("--outputs", type=int, default=1, help="of a head inside the kernels")
    parser.add_argument("--set", nargs="+", action="append", default=[], metavar="NAME=VALUE",
                        help="another tuning, beside the code's own")  # fmt: skip
    parser.add_argument("--only-set", action="store_true", help="leave out the code's own tuning")
    parser.add_argument("--capability", type=int, choices=MULTIPROCESSORS, default=90)
    parser.add_argument("--output", type=Path)
    parsed = parser.parse_args(arguments)
    tunings = [] if parsed.only_set else [{}]
    tunings += [tuning_changes(words) for words in parsed.set]
    programs = compile_only(parsed.capability, in_between)
    zeroed()
    result: dict[str, Any] = {"capability": parsed.capability, "triton": triton.__version__}
    result |= {"torch": torch.__version__, "rows": []}
    print(" | ".join(["size", "tuning", *COLUMNS]))
    for cell in parsed.cells:
        for particles, hidden in parsed.sizes:
            for precision in parsed.precisions:
                for changes in tunings:
                    ask = Ask(cell, particles, hidden, precision, parsed.outputs)
                    for row in compiled(ask, changes, programs, parsed.capability):
                        print(line(row), flush=True)
                        result["rows"].append(row)
                        if parsed.output:
                            write_json(parsed.output, result)


if __name__ == "__main__":
    main()
