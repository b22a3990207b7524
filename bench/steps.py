"""Time whole training steps of populations on a GPU: fused kernels, plain module, cuDNN.

    python bench/steps.py --output steps.json [--sections steps scaling rnn shapes] [--axes hidden]

A step is forward, backward, clipping and RMSprop of a small network (linear encoder, PF-LSTM or
PF-GRU, linear head, prediction loss and ELBO), captured as a CUDA graph and replayed on random
data; the median of ten replays counts. The plain module (:mod:`bench.plain_port`) runs eagerly,
before and after the kernels: with the same loss, clipping and L2 (``times_whole``), and with less
to do, no ELBO, no clipping (``times_plain``); ratios are to the faster of two medians. Where the
kernels refuse a size, the step is what the product takes instead, and its row says which way that
is and why. Section ``shapes`` compares tunings for more particles or units than those that most
runs have. A row says whether its population took the tuning of large ones
(``pfrnn.kernels.plan.crowded``). The card's name stands in the file. Rows are written as they come,
and a file that is there already, of the same card and torch, keeps its other sections and axes: a
short session measures a part.
"""

from __future__ import annotations

import argparse
import functools
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
from bench.plots import plot_scaling
from bench.shapes import SHAPES, check
from bench.step_models import (
    Size,
    choice_of,
    cudnn_step,
    fused_step,
    plain_step,
    reference_step,
    rnn_step,
)
from pfrnn.kernels.plan import BF16_VARIABLE, CROWDED, Tuning, tuning_for
from pfrnn.kernels.sequence import chosen_tuning
from pfrnn.study.files import write_json
from pfrnn.study.provenance import commit
from pfrnn.study.train.device import peak_memory

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def timed(step: Callable[[], None], repeats: int = 10) -> list[float]:
    """Wall times of a step in ms, after two more; the device is idle before and after each."""
    for _ in range(2):
        step()
    times = []
    for _ in range(repeats):
        wait(DEVICE)
        begin = time.perf_counter()
        step()
        wait(DEVICE)
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def milliseconds(step: Callable[[], None]) -> float:
    """Median of ten."""
    return statistics.median(timed(step))


def measure(size: Size, make: Callable[[], Callable[[], None]]) -> dict[str, Any]:
    """Time the step that ``make`` makes, and the peak of the memory that it takes.

    What the process holds before isn't counted: a graph leaves the workspaces of its matrix
    products behind (64 MiB on Hopper), so that later rows would seem to need more than early ones.
    """
    gc.collect()  # earlier graphs hold their memory until they are collected
    held = 0
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    ms = milliseconds(make())
    row = {**size._asdict(), "ms": ms, "ms_per_member": ms / size.members}
    row["peak_gib_per_member"] = (peak_memory(DEVICE) - held) / 2**30 / size.members
    print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return row


def fused(size: Size, tuning: Tuning | None = None) -> dict[str, Any]:
    """Time the kernels, with the code's own tuning unless there is one; was it the crowded one?"""
    row = measure(size, lambda: fused_step(size, tuning)) | {"way": "fused"}
    if tuning is not None:
        return row
    own = chosen_tuning(
        size.members, size.batch, size.particles, size.hidden, size.precision, DEVICE
    )
    return row | {"crowded": own != tuning_for(size.particles, size.hidden)}


def attempt(size: Size, timing: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Time a size; one that fails is a result too."""
    try:
        return timing()
    except Exception as error:
        print(size, type(error).__name__, str(error)[:200], flush=True)
        return {**size._asdict(), "error": str(error)[:300]}


PLAIN_WAYS = {False: "plain eager module", True: "plain eager module, the whole step"}


def plain_rows(
    size: Size, steps: dict[bool, Callable[[], None]], when: str
) -> Iterator[dict[str, Any]]:
    """Time the plain module, without and with the whole step's work, in turns.

    It waits for the host, so that other work there disturbs it.
    """
    for whole, step in steps.items():
        yield plain_row(size, step, when, PLAIN_WAYS[whole])


def plain_row(size: Size, step: Callable[[], None], when: str, way: str) -> dict[str, Any]:
    """Time one form of the plain module."""
    times = timed(step)
    row = {**size._asdict(), "way": way, "when": when}
    row |= {"ms": statistics.median(times), "fastest": min(times), "slowest": max(times)}
    print({k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return row | {"repeats": len(times)}


def steps_section() -> Iterator[dict[str, Any]]:
    """Both cells, populations of 1, 12 and 36; the plain module before and after them."""
    for cell in ("pf_lstm", "pf_gru"):
        size = Size(cell)
        plain = {whole: plain_step(size, whole) for whole in PLAIN_WAYS}
        yardsticks = []
        for row in plain_rows(size, plain, "before"):
            yardsticks.append(row)
            yield row
        rows: list[dict[str, Any]] = []
        # bf16 is refused without this; should it fail, nothing after it can be timed.
        tried = ("tf32", "bf16") if os.environ.get(BF16_VARIABLE) == "1" else ("tf32",)
        for precision in tried:
            for members in (1, 12, 36):
                row = fused(size._replace(members=members, precision=precision))
                rows.append(row | ratios(row, yardsticks))
                yield rows[-1]
        for after in plain_rows(size, plain, "after"):
            yardsticks.append(after)
            for row in rows:  # these stand in the result already, and are written again with it
                row.update(ratios(row, yardsticks))
            yield after


def ratios(row: dict[str, Any], yardsticks: list[dict[str, Any]]) -> dict[str, float]:
    """How many times the plain module's throughput a row has, by the faster of its medians."""
    ms = {
        way: [one["ms"] for one in yardsticks if one["way"] == way] for way in PLAIN_WAYS.values()
    }
    names = {"times_plain": PLAIN_WAYS[False], "times_whole": PLAIN_WAYS[True]}
    return {name: min(ms[way]) / row["ms_per_member"] for name, way in names.items()}


SCALING = {
    "members": [1, 2, 4, 8, 12, 24, 36, 72],
    "particles": [1, 5, 10, 20, 30, 60],
    "hidden": [32, 64, 128, 256],
    "steps": [25, 50, 100, 200, 400],
}
CENTRE = Size(members=12)


def as_the_product(size: Size) -> dict[str, Any]:
    """Time what the product does with a size, and say what that is and why."""
    choice = choice_of(size, DEVICE)
    if choice.name == "fused":
        return fused(size)
    row = measure(size, lambda: reference_step(size, choice.run, DEVICE))
    # Products outside the kernels are float32 products.
    return row | {"precision": "ieee", "way": choice.name, "reason": choice.reason}


def scaling_section(axes: Iterable[str] = tuple(SCALING)) -> Iterator[dict[str, Any]]:
    """One axis at a time, around PF-LSTM, 12 members, K 30, H 64, T 100."""
    for axis in axes:
        for value in SCALING[axis]:
            size = CENTRE._replace(**{axis: value})
            yield {"axis": axis, **attempt(size, functools.partial(as_the_product, size))}


def shapes_section() -> Iterator[dict[str, Any]]:
    """Tunings for more particles or units, beside the code's own, and their numbers."""
    for (axis, value), tunings in SHAPES.items():
        size = CENTRE._replace(**{axis: value})
        for changes in tunings:
            row = attempt(size, functools.partial(checked, size, changed(size, changes)))
            yield {"axis": axis, "tuning": changes, **row}


def changed(size: Size, changes: dict[str, Any]) -> Tuning:
    """Return the code's own tuning for a size, but for some changes."""
    return tuning_for(size.particles, size.hidden)._replace(**changes)


def checked(size: Size, tuning: Tuning) -> dict[str, Any]:
    """Time the kernels with a tuning, and compare its gradients with the code's own."""
    return check(size, tuning) | fused(size, tuning)


RNN_WAYS = {
    "plain": "reference step, CUDA graph",
    "compiled": "compiled step, CUDA graph",
    "fused": "kernels around the products, CUDA graph",
}


def rnn_section() -> Iterator[dict[str, Any]]:
    """LSTM-80 and GRU-86: cuDNN one at a time, populations with batched weights."""
    for cell, hidden in (("lstm", 80), ("gru", 86)):
        alone = milliseconds(cudnn_step(cell, hidden, Size()))
        yield {"cell": cell, "hidden": hidden, "way": "cuDNN", "members": 1, "ms": alone}
        for way, name in RNN_WAYS.items():
            for members in (36,) if way == "compiled" else (1, 6, 36):
                ms = milliseconds(rnn_step(cell, hidden, members, way, Size()))
                row = {"cell": cell, "hidden": hidden, "way": name, "members": members, "ms": ms}
                print(row, flush=True)
                yield row | {"ms_per_member": ms / members}


Job = tuple[str, int, dict[str, Any]]


def warm(axis: str, value: int, changes: dict[str, Any]) -> None:
    """Compile the kernels of one size and tuning into Triton's cache."""
    size = CENTRE._replace(steps=12, **{axis: value})  # as many members: early launches differ
    if choice_of(size, DEVICE).name == "fused":
        fused_step(size, changed(size, changes) if changes else None)


def to_warm(sections: Iterable[str], axes: Iterable[str]) -> list[Job]:
    """What these sections need compiled; only two axes need kernels anew."""
    jobs: list[Job] = []
    if "scaling" in sections:
        named = [axis for axis in ("particles", "hidden") if axis in axes]
        jobs += [(axis, value, {}) for axis in named for value in SCALING[axis]]
    if "shapes" in sections:
        jobs += [(*place, changes) for place, tunings in SHAPES.items() for changes in tunings]
    return [job for number, job in enumerate(jobs) if job not in jobs[:number]]


def warm_all(jobs: Iterable[Job]) -> None:
    """Compile side by side; what fails here fails again, and is recorded, where it is timed."""
    command = [sys.executable, str(Path(__file__).resolve()), "--warm"]
    running = [subprocess.Popen([*command, json.dumps(job)]) for job in jobs]
    for process in running:
        process.wait()


SECTIONS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
    "steps": steps_section,
    "scaling": scaling_section,
    "rnn": rnn_section,
    "shapes": shapes_section,
}


_EARLIER = {"narrow": False}


def begun(output: Path) -> dict[str, Any]:
    """What an earlier run on the same card, torch and tuning has left, or a new result."""
    new: dict[str, Any] = {**machine(DEVICE), "tuning": Tuning()._asdict(), "crowded": CROWDED}
    sizes = [CENTRE._replace(**{axis: value}) for axis, value in SHAPES]
    new["tuning_of"] = {f"{one.particles}x{one.hidden}": changed(one, {})._asdict()
                        for one in sizes}  # fmt: skip
    if not output.exists():
        return new
    old: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    # A choice that came with later code was, before it, what it is by default, but for these.
    earlier = Tuning._field_defaults | _EARLIER
    known = {**old, "tuning": {**earlier, **old.get("tuning", {})}}
    if any(known.get(name) != value for name, value in new.items()):
        kept = output.with_suffix(".before.json")
        output.replace(kept)
        print(f"{output} is of another card, torch or tuning; it is now {kept}", flush=True)
        return new
    return old


def main(arguments: list[str] | None = None) -> None:
    """Run the sections asked for and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("steps.json"))
    parser.add_argument("--sections", nargs="+", choices=SECTIONS,
                        default=["steps", "scaling", "rnn"])  # fmt: skip
    parser.add_argument(
        "--axes", nargs="+", choices=SCALING, default=list(SCALING), help="of the scaling section"
    )
    parser.add_argument(
        "--plot", type=Path, help="draw --output's scaling section, measure nothing"
    )
    parser.add_argument("--warm", type=json.loads, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.plot:
        plot_scaling(parsed.output, parsed.plot)
        return
    if parsed.warm:
        warm(*parsed.warm)
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    warm_all(to_warm(parsed.sections, parsed.axes))
    result = begun(parsed.output)
    for name in parsed.sections:
        result.setdefault("commits", {})[name] = commit()[0]
        old = result.get(name, []) if name == "scaling" else []
        result[name] = [row for row in old if row["axis"] not in parsed.axes]
        for row in SECTIONS[name](parsed.axes) if name == "scaling" else SECTIONS[name]():
            result[name].append(row)
            write_json(parsed.output, result)


if __name__ == "__main__":
    main()
