"""Do sums keep their order where noise is drawn ahead? Compiles for a GPU that isn't there.

``python -m tests.kernels.noise_ahead pf_lstm 30 64`` (cell, particles, units) prints one JSON line:
the layouts of the sums of the forward kernel's middle launch, with its noise drawn after the wait,
and before it. The interpreter can't see a difference: it adds in one order whatever the layout.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest import mock

from pfrnn.kernels import run_forward
from pfrnn.kernels.plan import Tuning
from tests.kernels.compiled_only import compile_only, step, sums, zeroed


def middle(name: str, options: dict[str, Any]) -> bool:
    return name == "forward_kernel" and not options["FIRST"] and not options["LAST"]


def main(cell: str, particles: str, units: str) -> None:
    programs = compile_only(90, middle)
    zeroed()
    found = []
    for ahead in (0, 1):
        programs.clear()
        with mock.patch.object(run_forward, "multiprocessors", return_value=1000):
            step(cell == "pf_gru", 1, 4, "tf32", int(units), 1, int(particles),
                 Tuning(noise_ahead=ahead))  # fmt: skip
        (kernel,) = programs.values()
        found.append(sums(kernel))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
