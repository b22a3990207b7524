"""Time whole training steps of populations on a GPU: fused kernels, a plain module, cuDNN.

    python bench/steps.py --output bench/steps.json [--sections steps scaling rnn]

A step is forward, backward, clipping and RMSprop of a small network (linear encoder, PF-LSTM or
PF-GRU, linear head, prediction loss and ELBO), captured as a CUDA graph and replayed on random
data; the median of ten replays counts. The plain module (:mod:`bench.plain_port`) runs eagerly in
the same process, before and after the kernels, in two forms: with the same loss, clipping and L2
(``times_whole``), and with squared errors of the mean alone (``times_plain``). Each ratio is to
the faster of the two medians. Sections of a file that is there already are kept.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.blocks import machine, wait
from bench.step_models import Size, cudnn_step, fused_step, plain_step, rnn_step
from pfrnn.study.files import write_json
from pfrnn.study.provenance import commit
from pfrnn.study.train.device import peak_memory

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
POPULATIONS = (1, 12, 36)
SCALING = {
    "members": [1, 2, 4, 8, 12, 24, 36, 72],
    "particles": [1, 5, 10, 20, 30, 60],
    "hidden": [32, 64, 128],
    "steps": [25, 50, 100, 200, 400],
}
CENTRE = Size(members=12)
PLAIN_WAYS = {False: "plain eager module", True: "plain eager module, the whole step"}

Row = dict[str, Any]
Step = Callable[[], None]


def timed(step: Step, repeats: int = 10) -> list[float]:
    """Wall times of a step in ms, after two more; the device is idle before and after each."""
    for _ in range(2):
        step()
    times = []
    for _ in range(repeats):
        wait(DEVICE)
        start = time.perf_counter()
        step()
        wait(DEVICE)
        times.append(1e3 * (time.perf_counter() - start))
    return times


def measure(size: Size) -> Row:
    """Time the fused step of a size and the peak of the memory that it takes.

    What the process holds before isn't counted: a graph leaves the workspaces of its matrix
    products behind (64 MiB on Hopper).
    """
    gc.collect()  # earlier graphs hold their memory until they are collected
    held = 0
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    ms = statistics.median(timed(fused_step(size)))
    gib = (peak_memory(DEVICE) - held) / 2**30 / size.members
    row = {**size._asdict(), "ms": ms, "ms_per_member": ms / size.members, "way": "fused"}
    return row | {"peak_gib_per_member": gib}


def plain_rows(size: Size, steps: dict[bool, Step], when: str) -> Iterator[Row]:
    """Time both forms of the plain module. It waits for the host, so other work disturbs it."""
    for whole, step in steps.items():
        times = timed(step)
        row = {**size._asdict(), "way": PLAIN_WAYS[whole], "when": when, "repeats": len(times)}
        yield row | {
            "ms": statistics.median(times), "fastest": min(times), "slowest": max(times)
        }  # fmt: skip


def ratios(row: Row, plain: list[Row]) -> dict[str, float]:
    """How many times the plain module's throughput a row has, by the faster of its medians."""
    fastest = {
        way: min(one["ms"] for one in plain if one["way"] == way) for way in PLAIN_WAYS.values()
    }
    names = {"times_plain": PLAIN_WAYS[False], "times_whole": PLAIN_WAYS[True]}
    return {name: fastest[way] / row["ms_per_member"] for name, way in names.items()}


def steps_section() -> Iterator[Row]:
    """Both cells, populations of 1, 12 and 36; the plain module before and after them."""
    for cell in ("pf_lstm", "pf_gru"):
        size = Size(cell)
        steps = {whole: plain_step(size, whole) for whole in PLAIN_WAYS}
        before = list(plain_rows(size, steps, "before"))
        rows = [measure(size._replace(members=members)) for members in POPULATIONS]
        after = list(plain_rows(size, steps, "after"))
        yield from before
        yield from (row | ratios(row, before + after) for row in rows)
        yield from after


def scaling_section() -> Iterator[Row]:
    """One axis at a time, around PF-LSTM, 12 members, K 30, H 64, T 100; a failure is a row too."""
    for axis, values in SCALING.items():
        for value in values:
            size = CENTRE._replace(**{axis: value})
            try:
                row = measure(size)
            except Exception as error:
                row = {**size._asdict(), "error": str(error)[:300]}
            yield {"axis": axis, **row}


def rnn_section() -> Iterator[Row]:
    """LSTM-80 and GRU-86: cuDNN one at a time, populations with batched weights."""
    for cell, hidden in (("lstm", 80), ("gru", 86)):
        named = {"cell": cell, "hidden": hidden}
        alone = statistics.median(timed(cudnn_step(cell, hidden, Size())))
        yield {**named, "way": "cuDNN", "members": 1, "ms": alone}
        for members in (1, 6, 36):
            ms = statistics.median(timed(rnn_step(cell, hidden, members, Size())))
            row = {**named, "way": "kernels around the products, CUDA graph", "members": members}
            yield row | {"ms": ms, "ms_per_member": ms / members}


SECTIONS = {"steps": steps_section, "scaling": scaling_section, "rnn": rnn_section}


def opened(output: Path) -> Row:
    """What an earlier run has left in the file, or a new result.

    Raises:
        SystemExit: the file is of another card or torch.
    """
    new: Row = {**machine(DEVICE), "commits": {}}
    if not output.exists():
        return new
    old: Row = json.loads(output.read_text(encoding="utf-8"))
    if any(old[name] != value for name, value in machine(DEVICE).items()):
        raise SystemExit(f"{output}: measured on {old['card']}, torch {old['torch']}; "
                         "write to another file")  # fmt: skip
    return old


def main(arguments: list[str] | None = None) -> None:
    """Run the sections asked for; rows are written as they come."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("steps.json"))
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parsed = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = True  # of the plain module's products
    result = opened(parsed.output)
    for name in parsed.sections:
        result["commits"][name] = commit()[0]
        result[name] = []
        for row in SECTIONS[name]():
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()},
                  flush=True)  # fmt: skip
            result[name].append(row)
            write_json(parsed.output, result)


if __name__ == "__main__":
    main()
