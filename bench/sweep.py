"""Time named tunings of the fused kernels on a GPU, one after the other, and compare their numbers.

    python bench/sweep.py --output sweep.json --limit 200
    python bench/sweep.py --best all        # that candidate's tuning, as JSON

A step is that of ``bench/steps.py``: batch 64, T 100, K 30, H 64, a CUDA graph. Every candidate is
timed with 12 PF-LSTMs, then with 12 PF-GRUs; the fastest few with 36 and with one. The default is
timed first and last, the plain module once a cell and way. Each candidate's losses and gradients
over a few steps are compared with the default's (``gap``: the largest error over the largest value,
where ReLU's kinks count; ``norm``: the error's norm over the norm) and with themselves
(``repeats``).

A child process does the timing and another one goes on where it fails, hangs or loses its context;
what it was at is recorded as an error. The file is written after every row, and rows that are there
already aren't timed again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.blocks import machine
from bench.shapes import numbers
from bench.step_models import Size, fused_step, plain_step
from bench.steps import DEVICE, timed
from pfrnn.kernels.plan import CROWDED, Tuning
from pfrnn.study.files import write_json
from pfrnn.study.provenance import commit

_LATE = {"late_loads": True}
_FETCH = {"backward_fetch": True}
_SPLIT = {"split": True, "backward_registers": 168} | _LATE
# From what is sure to run to what most likely is fastest, and might not. The default is the whole
# step of small populations, "all" what large ones take.
CANDIDATES: dict[str, dict[str, Any]] = {
    "default": {},
    "no_ticket": {"ticket": False},
    "late": _LATE,
    "split168": _SPLIT,
    "fetch_b_late": _LATE | _FETCH,
    "fetch_split": _SPLIT | _FETCH | {"backward_registers": None},
    "fetch_split168": _SPLIT | _FETCH,
    "fetch_split128": _SPLIT | _FETCH | {"backward_registers": 128},
    "fetch_f": {"forward_fetch": True},
    "fetch_f128": {"forward_fetch": True, "forward_registers": 128},
    "split168_fetch_f": _SPLIT | {"forward_fetch": True},
    "all": CROWDED,
    "not_lean": CROWDED | {"lean_ends": False},
    "float32": {"narrow": False},
    "all_float32": CROWDED | {"narrow": False},
    "all128": CROWDED | {"backward_registers": 128},
}
CELLS = ("pf_lstm", "pf_gru")
# One plain module, with less to do and with the whole training step (bench.step_models.plain_step).
PLAIN = ("plain", "plain_whole")
# Best candidates that are timed with other populations, and those.
FEW, POPULATIONS = 3, (36, 1)
# A gap of so much isn't rounding: such a candidate isn't among the best.
WRONG = 0.5
# Seconds without a new row after which a child hangs.
PATIENCE = 45.0


class Job(NamedTuple):
    """One row of the result."""

    name: str
    cell: str
    members: int
    turn: int = 0


def tuning_of(name: str) -> Tuning:
    """Return a candidate's tuning."""
    return Tuning()._replace(**CANDIDATES[name])


def compared(size: Size, tuning: Tuning, expected: dict[str, Tensor]) -> dict[str, Any]:
    """Compare a tuning's numbers with the default's and with its own."""
    first, second = numbers(size, tuning), numbers(size, tuning)
    gaps = {k: float((first[k] - v).abs().max() / v.abs().max()) for k, v in expected.items()}
    whole = torch.cat([v.flatten() for v in expected.values()])
    error = torch.cat([first[k].flatten() for k in expected]) - whole
    worst = max(gaps, key=lambda name: gaps[name] if gaps[name] == gaps[name] else float("inf"))
    same = all(torch.equal(first[k], second[k]) for k in first)
    return {"gap": gaps[worst], "of": worst, "loss_gap": gaps["loss"],
            "norm": float(error.norm() / whole.norm()), "repeats": same}  # fmt: skip


def timing(job: Job, expected: dict[str, dict[str, Tensor]]) -> dict[str, Any]:
    """Compare and time one candidate; ``expected`` keeps the default's numbers, by cell."""
    size = Size(job.cell, members=job.members)
    if job.name in PLAIN:
        times = timed(plain_step(size._replace(members=1), whole=job.name == "plain_whole"))
        return {"ms_per_member": statistics.median(times)}
    tuning = tuning_of(job.name)
    small = size._replace(members=12, steps=4)
    if job.cell not in expected:
        expected[job.cell] = numbers(small, Tuning())
    row = compared(small, tuning, expected[job.cell]) if job.members == 12 else {}
    times = timed(fused_step(size, tuning), 15)
    row |= {"ms_per_member": statistics.median(times) / job.members}
    return row | {"fastest": min(times) / job.members}


def best(rows: list[dict[str, Any]]) -> list[str]:
    """The fastest candidates with twelve members, both cells together where both were timed."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["members"] == 12 and row["name"] not in ("default", *PLAIN):
            right = "error" not in row and row["norm"] < WRONG and row["repeats"]
            found.setdefault(row["name"], {})[row["cell"]] = (
                row["ms_per_member"] if right else float("inf")
            )
    sums = {name: sum(times.values()) for name, times in found.items() if len(times) == len(CELLS)}
    return sorted((n for n in sums if sums[n] < float("inf")), key=sums.__getitem__)[:FEW]


def jobs(rows: list[dict[str, Any]], names: list[str]) -> list[Job]:
    """All rows wanted, in order; the last ones follow from the first."""
    wanted = []
    for cell in CELLS:
        wanted += [Job(name, cell, 1) for name in PLAIN]
        wanted += [Job(name, cell, 12) for name in names]
        wanted.append(Job("default", cell, 12, 1))
    done = {place(row) for row in rows}
    if all(job in done for job in wanted):
        for name in ["default", *best(rows)]:
            wanted += [Job(name, cell, m) for m in POPULATIONS for cell in CELLS]
        wanted.append(Job("default", "pf_lstm", 12, 2))
    return wanted


def place(row: dict[str, Any]) -> Job:
    """Which job a row is of."""
    return Job(*(row[name] for name in Job._fields))


def following(result: dict[str, Any]) -> Job | None:
    """The first job that isn't done."""
    done = {place(row) for row in result["rows"]}
    return next((job for job in jobs(result["rows"], result["names"]) if job not in done), None)


def work(output: Path, until: float) -> None:
    """Do what is left, in this process; leave it (1) where its context may be broken."""
    result: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    torch.backends.cuda.matmul.allow_tf32 = True
    expected: dict[str, dict[str, Tensor]] = {}
    while time.time() < until and (job := following(result)):
        write_json(output, result | {"at": job._asdict()})
        failed = False
        try:
            row = job._asdict() | timing(job, expected)
        except Exception as error:  # a candidate that fails is a result too
            failed = True
            row = job._asdict() | {"error": f"{type(error).__name__}: {error}"[:300]}
        print({k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        result["rows"].append(row)
        write_json(output, result)
        if failed:
            sys.exit(1)


def warm(names: list[str], until: float) -> None:
    """Compile side by side, each in a process of its own; what fails here fails again later."""
    command = [sys.executable, str(Path(__file__).resolve()), "--warm"]

    def one(name: str, cell: str) -> None:
        left = max(1.0, min(until - time.time(), 2 * PATIENCE))
        try:
            subprocess.run([*command, name, cell], timeout=left, check=False, capture_output=True)
        except subprocess.TimeoutExpired:
            print(f"{name}, {cell}: not compiled in {left:.0f} s", flush=True)

    with ThreadPoolExecutor(max(4, 3 * (os.cpu_count() or 4) // 4)) as pool:
        for cell in CELLS:
            for name in names:
                pool.submit(one, name, cell)


def supervised(output: Path, until: float) -> None:
    """Run children until all is done or time is up; what a dead one was at is an error."""
    command = [sys.executable, str(Path(__file__).resolve()), "--work", str(until)]
    while time.time() < until:
        child = subprocess.Popen([*command, "--output", str(output)])
        written = time.time()
        while child.poll() is None:
            time.sleep(0.2)
            written = max(written, output.stat().st_mtime)
            if time.time() > min(written + PATIENCE, until + 5):
                child.kill()
                child.wait()
        result: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
        at = result.pop("at", None)
        if at is not None and time.time() < until:
            result["rows"].append({**at, "error": f"the process ended: {child.returncode}"})
            write_json(output, result)
        if following(result) is None:
            return


def main(arguments: list[str] | None = None) -> None:
    """Compile, time, compare and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("sweep.json"))
    parser.add_argument("--limit", type=float, default=200.0, help="seconds, compiling included")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--best", choices=CANDIDATES, help="print a candidate's tuning, no more")
    parser.add_argument("--work", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--warm", nargs=2, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.best:
        print(json.dumps(tuning_of(parsed.best)._asdict()))
        return
    if parsed.warm:
        name, cell = parsed.warm
        numbers(Size(cell, members=12, steps=4), tuning_of(name))
        torch.cuda.synchronize()
        return
    if parsed.work:
        work(parsed.output, parsed.work)
        return
    begun = time.time()
    until = begun + parsed.limit
    names = ["default", *(name for name in parsed.only if name != "default")]
    result: dict[str, Any] = {**machine(DEVICE), "commit": commit()[0], "rows": []}
    if parsed.output.exists():
        old = json.loads(parsed.output.read_text(encoding="utf-8"))
        if all(old.get(k) == v for k, v in result.items() if k != "rows"):
            result["rows"] = [row for row in old["rows"] if "error" not in row]
    result |= {"names": names, "tunings": {name: CANDIDATES[name] for name in names}}
    write_json(parsed.output, result)
    warm(names, until)
    print(f"compiled after {time.time() - begun:.0f} s", flush=True)
    supervised(parsed.output, until)
    print(f"done after {time.time() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
