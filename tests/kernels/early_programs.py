"""What differs between a forward program that begins early and one that doesn't? Needs no GPU.

``python -m tests.kernels.early_programs pf_lstm 30 64`` (cell, particles, units) compiles the
forward kernel's launches in the middle and at the end, early and not, and prints one JSON line,
for each of the two: the instructions by which an early launch begins and waits, as Triton's last
code with layouts has them; whether the rest of that code is the same; the floating-point
instructions of which the machine programs have unequal numbers; and how many there are in all.

Whether a launch begins early goes by the number of members, and a member's bits must not. The
interpreter can't see a difference: it adds in one order, whatever the layout.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pfrnn.kernels.plan import Tuning
from tests.kernels.compiled_only import compile_only, step, zeroed
from tests.kernels.machine_code import INSTRUCTION, disassembled

# Products, sums and elementary functions, and the exchange of sums between threads.
NUMBERS = re.compile(r"(F(ADD|MUL|FMA|MNMX|SETP|SEL|CHK)|MUFU|H?GMMA|HMMA|SHFL)\b")

# How Triton up to 3.6, and later, writes "let the next begin" and "wait for the previous".
BEGINS = re.compile(r"griddepcontrol|grid_dependency")


def later(name: str, options: dict[str, Any]) -> bool:
    return name == "forward_kernel" and not options["FIRST"]


def layouts(kernel: Any) -> list[str]:
    """Its lines, but for the numbering of values and what the text says of the source."""
    text = re.sub(r"loc\([^()]*(\([^()]*\)[^()]*)*\)", "", kernel.asm["ttgir"])
    lines = re.sub(r"%\w+(:\d+|#\d+)?", "%", text).splitlines()
    return [line.strip() for line in lines if not line.startswith("#loc")]


def instructions(kernel: Any) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(kernel.asm["cubin"])
        code = disassembled(path)
    return Counter(name for _, name, _ in INSTRUCTION.findall(code) if NUMBERS.match(name))


def is_last(kernel: Any) -> bool:
    names = kernel.src.fn.arg_names
    return bool({names[place[0]]: value for place, value in kernel.src.constants.items()}["LAST"])


def main(cell: str, particles: str, units: str) -> None:
    programs = compile_only(90, later)
    zeroed()
    made = []
    for enough in (0, None):
        programs.clear()
        step(cell == "pf_gru", 1, 4, "tf32", int(units), 1, int(particles),
             Tuning(forward_early_from=enough))  # fmt: skip
        made.append(sorted(programs.values(), key=is_last))
    found = []
    for early, waiting in zip(*made, strict=True):
        lines = [layouts(early), layouts(waiting)]
        counts = [instructions(early), instructions(waiting)]
        only = [line for line in lines[0] if BEGINS.search(line)]
        rest = [line for line in lines[0] if not BEGINS.search(line)]
        unequal = (counts[0] - counts[1]) + (counts[1] - counts[0])
        found.append([only, rest == lines[1], dict(unequal), counts[0].total()])
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
