"""Time whole training steps of populations on a GPU: fused kernels, plain module, cuDNN.

    python bench/steps.py --output steps.json [--sections steps scaling rnn] [--axes hidden]

A step is forward, backward, clipping and RMSprop of a small network (linear encoder, PF-LSTM or
PF-GRU, linear head, prediction loss and ELBO), captured as a CUDA graph and replayed on random
data; the median of ten replays counts. The plain module (:mod:`bench.plain_port`) runs eagerly,
with less to do (no ELBO, no clipping). The card's name stands in the file. Rows are written as they
come, and a file that is there already, of the same card and torch, keeps its other sections and
axes: a short session measures a part.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.blocks import machine, wait
from bench.step_models import Size, cudnn_step, fused_step, plain_step, rnn_step
from pfrnn.files import write_json
from pfrnn.kernels.plan import BF16_VARIABLE, Tuning
from pfrnn.training.device import peak_memory

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def milliseconds(step: Callable[[], None], repeats: int = 10) -> float:
    """Median wall time of a step; the device is idle before and after each."""
    for _ in range(2):
        step()
    times = []
    for _ in range(repeats):
        wait(DEVICE)
        begin = time.perf_counter()
        step()
        wait(DEVICE)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def measure(size: Size, tuning: Tuning | None = None) -> dict[str, Any]:
    """Time a fused step and its peak memory."""
    gc.collect()  # earlier graphs hold their memory until they are collected
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    ms = milliseconds(fused_step(size, tuning))
    row = {**size._asdict(), "ms": ms, "ms_per_member": ms / size.members}
    row["peak_gib_per_member"] = peak_memory(DEVICE) / 2**30 / size.members
    print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return row


def steps_section() -> Iterator[dict[str, Any]]:
    """Both cells, populations of 1, 12 and 36; the plain module beside them."""
    for cell in ("pf_lstm", "pf_gru"):
        size = Size(cell)
        plain = milliseconds(plain_step(size), 3)
        yield {**size._asdict(), "way": "plain eager module", "ms": plain}
        print(cell, "plain eager module", round(plain, 1), flush=True)
        # bf16 is refused without this; should it fail, nothing after it can be timed.
        tried = ("tf32", "bf16") if os.environ.get(BF16_VARIABLE) == "1" else ("tf32",)
        for precision in tried:
            for members in (1, 12, 36):
                row = measure(size._replace(members=members, precision=precision))
                yield row | {"way": "fused", "times_plain": plain / row["ms_per_member"]}


SCALING = {
    "members": [1, 2, 4, 8, 12, 24, 36, 72],
    "particles": [1, 5, 10, 20, 30, 60],
    "hidden": [32, 64, 128, 256],
    "steps": [25, 50, 100, 200, 400],
}


def scaling_section(axes: Iterable[str] = tuple(SCALING)) -> Iterator[dict[str, Any]]:
    """One axis at a time, around PF-LSTM, 12 members, K 30, H 64, T 100."""
    for axis in axes:
        for value in SCALING[axis]:
            size = Size(members=12)._replace(**{axis: value})
            try:
                row = measure(size)
            except Exception as error:  # a size that fails is a result too
                row = {**size._asdict(), "error": str(error)[:300]}
                print(axis, value, type(error).__name__, str(error)[:200], flush=True)
            yield {"axis": axis, **row}


def rnn_section() -> Iterator[dict[str, Any]]:
    """LSTM-80 and GRU-86: cuDNN one at a time, populations of 36 with batched weights."""
    for cell, hidden in (("lstm", 80), ("gru", 86)):
        alone = milliseconds(cudnn_step(cell, hidden, Size()))
        yield {"cell": cell, "hidden": hidden, "way": "cuDNN", "members": 1, "ms": alone}
        for compiled in (False, True):
            ms = milliseconds(rnn_step(cell, hidden, 36, compiled, Size()))
            way = "compiled step, CUDA graph" if compiled else "reference step, CUDA graph"
            row = {"cell": cell, "hidden": hidden, "way": way, "members": 36, "ms": ms}
            print(row, flush=True)
            yield row | {"ms_per_member": ms / 36}


def warm(axis: str, value: int) -> None:
    """Compile the kernels of one size into Triton's cache."""
    fused_step(Size(members=1, steps=12)._replace(**{axis: value}))


def warm_all(axes: Iterable[str]) -> None:
    """Compile the sizes of the scaling section side by side; only these two need kernels anew."""
    jobs = [(axis, v) for axis in ("particles", "hidden") if axis in axes for v in SCALING[axis]]
    command = [sys.executable, str(Path(__file__).resolve()), "--warm"]
    running = [subprocess.Popen([*command, axis, str(v)]) for axis, v in jobs]
    for process in running:
        process.wait()


def plot(source: Path, target: Path) -> None:
    """Draw the time a model and step against each axis of the scaling section."""
    from matplotlib.figure import Figure

    result = json.loads(source.read_text(encoding="utf-8"))
    rows = [row for row in result["scaling"] if "ms_per_member" in row]
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    figure = Figure(figsize=(3.2 * len(axes), 2.8), layout="constrained")
    for place, axis in enumerate(axes, 1):
        one = [row for row in rows if row["axis"] == axis]
        panel = figure.add_subplot(1, len(axes), place)
        panel.loglog([r[axis] for r in one], [r["ms_per_member"] for r in one], "o-")
        panel.set_xlabel(axis)
        panel.set_ylabel("ms a model and step")
        panel.grid(True, which="both", alpha=0.3)
    figure.suptitle(f"PF-LSTM, {result['card']}")
    figure.savefig(target, dpi=120)


SECTIONS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
    "steps": steps_section,
    "scaling": scaling_section,
    "rnn": rnn_section,
}


def begun(output: Path) -> dict[str, Any]:
    """What an earlier run on the same card, torch and tuning has left, or a new result."""
    new: dict[str, Any] = {**machine(DEVICE), "tuning": Tuning()._asdict()}
    if not output.exists():
        return new
    old: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    if any(old.get(name) != value for name, value in new.items()):
        kept = output.with_suffix(".before.json")
        output.replace(kept)
        print(f"{output} is of another card, torch or tuning; it is now {kept}", flush=True)
        return new
    return old


def main(arguments: list[str] | None = None) -> None:
    """Run the sections asked for and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("steps.json"))
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument(
        "--axes", nargs="+", choices=SCALING, default=list(SCALING), help="of the scaling section"
    )
    parser.add_argument(
        "--plot", type=Path, help="draw --output's scaling section, measure nothing"
    )
    parser.add_argument("--warm", nargs=2, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.plot:
        plot(parsed.output, parsed.plot)
        return
    if parsed.warm:
        warm(parsed.warm[0], int(parsed.warm[1]))
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    if "scaling" in parsed.sections:
        warm_all(parsed.axes)
    result = begun(parsed.output)
    for name in parsed.sections:
        old = result.get(name, []) if name == "scaling" else []
        result[name] = [row for row in old if row["axis"] not in parsed.axes]
        for row in SECTIONS[name](parsed.axes) if name == "scaling" else SECTIONS[name]():
            result[name].append(row)
            write_json(parsed.output, result)


if __name__ == "__main__":
    main()
