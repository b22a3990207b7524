"""Time a training step of PFLSTM and PFGRU beside the plain loop port.

    python bench/layers.py --output bench/layers.json [--compile] [--steps 100 ...]

Contenders take turns within every round, so that a busy machine slows them alike. Reported are
wall seconds (median and quickest round), processor seconds (quickest round; they count no waiting
for others, and are the fairer number on a busy machine with one thread), the speedups that follow
(median of the round-by-round ratios; ratio of processor seconds), and the tensors that autograd
keeps for the backward (saved-tensor hooks, each storage once), which is what memory grows with.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.plain_port import PlainPFGRU, PlainPFLSTM
from pfrnn.nn import PFGRU, PFLSTM
from pfrnn.study.files import write_json


class Size(NamedTuple):
    """Sizes of the benchmark."""

    batch: int = 64
    steps: int = 100
    particles: int = 30
    hidden: int = 64
    inputs: int = 64


def contenders(size: Size, compiled: bool) -> dict[str, nn.Module | Callable[[Tensor], Tensor]]:
    """Build every contender by name; the plain ones first."""
    made: dict[str, Any] = {}
    for name, plain, ours in (("lstm", PlainPFLSTM, PFLSTM), ("gru", PlainPFGRU, PFGRU)):
        made[f"plain_{name}"] = plain(size.inputs, size.hidden, size.particles)
        layer = ours(size.inputs, size.hidden, num_particles=size.particles)
        made[f"pf_{name}"] = layer
        if compiled:
            made[f"pf_{name}_compiled"] = compile_step(layer)
    return made


def compile_step(layer: nn.Module) -> nn.Module:
    """Return a copy of the layer whose step is compiled (compiling T steps would take minutes)."""
    import copy

    twin = copy.deepcopy(layer)
    twin.compile_step()  # type: ignore[operator]
    return twin


def train_step(model: Callable[[Tensor], Any], x: Tensor) -> None:
    """Run forward and backward of the sum of squares of the output."""
    output = model(x)
    output = output[0] if isinstance(output, tuple) else output
    output.square().sum().backward()


def saved_bytes(model: Callable[[Tensor], Any], x: Tensor) -> int:
    """Return the bytes of the distinct storages that one forward saves for its backward."""
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        train_step(model, x)
    return sum(storages.values())


def measure(size: Size, rounds: int, compiled: bool) -> dict[str, Any]:
    """Time all contenders in turns."""
    x = torch.randn(size.steps, size.batch, size.inputs)
    models = contenders(size, compiled)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    cpu: dict[str, list[float]] = {name: [] for name in models}
    for model in models.values():
        train_step(model, x)  # warm up, compile
    for _ in range(rounds):
        for name, model in models.items():
            start, cpu_start = time.perf_counter(), time.process_time()
            train_step(model, x)
            seconds[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - cpu_start)
    rows = {}
    for name, taken in seconds.items():
        plain = "plain_lstm" if "lstm" in name else "plain_gru"
        ratios = [b / s for b, s in zip(seconds[plain], taken, strict=True)]
        rows[name] = {
            "median_s": round(statistics.median(taken), 4),
            "min_s": round(min(taken), 4),
            "min_cpu_s": round(min(cpu[name]), 4),
            "speedup_median": round(statistics.median(ratios), 2),
            "speedup_cpu": round(min(cpu[plain]) / min(cpu[name]), 2),
            "saved_mib": round(saved_bytes(models[name], x) / 2**20, 1),
        }
    return rows


def table(rows: dict[str, Any]) -> str:
    """Lay the rows out as a Markdown table."""
    keys = ["median_s", "min_s", "min_cpu_s", "speedup_median", "speedup_cpu", "saved_mib"]
    lines = ["| contender | " + " | ".join(keys) + " |", "|---" * (len(keys) + 1) + "|"]
    lines += [f"| {n} | " + " | ".join(str(row[k]) for k in keys) + " |" for n, row in rows.items()]
    return "\n".join(lines)


def main() -> None:
    """Parse the arguments, measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in Size._fields:
        parser.add_argument(f"--{field}", type=int, default=Size._field_defaults[field])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="also the compiled step")
    parser.add_argument("--output", type=Path, help="write JSON here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    size = Size(**{field: getattr(args, field) for field in Size._fields})
    rows = measure(size, args.rounds, args.compile)
    print(table(rows))
    if args.output:
        system = {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "threads": args.threads,
            "load_average": round(os.getloadavg()[0], 1),
        }
        result = {"size": size._asdict(), "rounds": args.rounds, "system": system, "rows": rows}
        write_json(args.output, result)


if __name__ == "__main__":
    main()
