"""Several jobs on one GPU: what a training step takes when others run beside it.

    python bench/sharing.py --output bench/sharing.json --jobs 1 2 4 8 --members 3 --particles 20

Blocks of a reduced search are small (3 to 6 members): their kernels leave most of a card idle, so
several should fit. Two ways are timed, and how much they gain over one job after another:

- ``streams``: all jobs in one process, each with a CUDA stream of its own;
- ``processes``: each job in a process of its own, as Snakemake starts them. Without NVIDIA's MPS
  daemon processes take turns on a card; ``mps`` in a row says whether a client of the daemon had
  reached it.

A job replays the captured step of ``bench/steps.py`` (batch 64, T 100, H 64) for ``--seconds``.
``ms`` is seconds over all jobs' steps, a step being all members' of one job; ``gain`` is the ``ms``
of one job in the first way that has it over that: ``--jobs`` should begin with 1. Rows are written
as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.blocks import machine, wait
from bench.step_models import Size, fused_step
from pfrnn.kernels.plan import Tuning, tuning_for
from pfrnn.study.files import write_json
from pfrnn.study.provenance import commit

WAYS = ("streams", "processes")
# Steps queued a job before the host looks at the clock: enough to keep the card at work.
AHEAD = 4


def tuning_of(size: Size, early: bool) -> Tuning | None:
    """The code's own tuning, or the same without launches that begin early."""
    if early:
        return None
    tuning = tuning_for(size.particles, size.hidden)
    return tuning._replace(forward_early_from=None, backward_early=False)


def paced(steps: Sequence[Callable[[], None]], seconds: float, device: torch.device) -> float:
    """Take all steps in turn for so long; the seconds that a round took."""
    wait(device)
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(AHEAD):
            for step in steps:
                step()
        wait(device)
        rounds += AHEAD
    return (time.perf_counter() - begin) / rounds


def on_a_stream(make: Callable[[], Callable[[], None]]) -> Callable[[], None]:
    """Make a step on a stream of its own; it runs there."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step = make()
    stream.synchronize()

    def run() -> None:
        with torch.cuda.stream(stream):
            step()

    return run


def streams(size: Size, early: bool, jobs: int, seconds: float) -> float:
    """Milliseconds a job's step, the jobs in this process."""
    steps = [on_a_stream(lambda: fused_step(size, tuning_of(size, early))) for _ in range(jobs)]
    return 1e3 * paced(steps, seconds, torch.device("cuda")) / jobs


def worker(size: Size, early: bool, seconds: float) -> None:
    """One job of :func:`processes`: says that it is ready, waits for a line, prints its rate."""
    step = fused_step(size, tuning_of(size, early))
    print("ready", flush=True)
    sys.stdin.readline()
    print(paced([step], seconds, torch.device("cuda")), flush=True)


def processes(size: Size, early: bool, jobs: int, seconds: float) -> float:
    """Milliseconds a job's step, each job in a process of its own."""
    asked = json.dumps([size._asdict(), early, seconds])
    command = [sys.executable, __file__, "--worker", asked]
    with tempfile.TemporaryFile("w+") as errors:
        started = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
            for _ in range(jobs)
        ]
        try:
            for one in started:
                if said(one) != "ready":
                    raise RuntimeError(ended("before its step was made", one, errors))
            for one in started:
                stdin_of(one).write("go\n")
                stdin_of(one).flush()
            rates = []
            for one in started:
                end = said(one)
                if not end:
                    raise RuntimeError(ended("while it was timed", one, errors))
                rates.append(1.0 / float(end))
        finally:
            for one in started:
                one.kill()
                one.wait()
    return 1e3 / sum(rates)


def ended(when: str, one: subprocess.Popen[str], errors: IO[str]) -> str:
    """Say that a job's process ended, and what it said last of an error."""
    code = one.wait(60)
    errors.seek(0)
    told = [line.strip() for line in errors if "Error" in line]
    why = f": {told[-1]}" if told else ""
    return f"a job's process ended {when} (exit code {code}){why}"


def said(one: subprocess.Popen[str]) -> str:
    """A process's next line."""
    if one.stdout is None:
        raise ValueError("the process has no pipe")
    return one.stdout.readline().strip()


def stdin_of(one: subprocess.Popen[str]) -> Any:
    """What a process reads."""
    if one.stdin is None:
        raise ValueError("the process has no pipe")
    return one.stdin


def mps() -> bool:
    """Whether the daemon that this process's variables name has started a server."""
    try:
        done = subprocess.run(
            ["nvidia-cuda-mps-control"], input="get_server_list\n", capture_output=True, text=True,
            timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and any(line.strip().isdigit() for line in done.stdout.splitlines())


TIMED: dict[str, Callable[[Size, bool, int, float], float]] = {
    "streams": streams,
    "processes": processes,
}


def measure(parsed: argparse.Namespace, size: Size) -> dict[str, Any]:
    """Time every way with every number of jobs."""
    result: dict[str, Any] = {**machine(torch.device("cuda")), "commit": commit()[0]}
    result["rows"] = []
    single: dict[bool, float] = {}
    for early in (True, False) if parsed.late else (True,):
        for way in parsed.ways:
            for jobs in parsed.jobs:
                row = {**size._asdict(), "way": way, "jobs": jobs, "early": early}
                try:
                    row["ms"] = TIMED[way](size, early, jobs, parsed.seconds)
                except Exception as error:
                    # A size or a number of jobs that fails is a result too.
                    row["error"] = str(error)[:300]
                else:
                    if jobs == 1:
                        single.setdefault(early, row["ms"])
                    if early in single:
                        row["gain"] = single[early] / row["ms"]
                if way == "processes":
                    row["mps"] = mps()
                result["rows"].append(row)
                write_json(parsed.output, result)
                print({k: row[k] for k in ("way", "jobs", "early", "ms", "gain", "mps", "error")
                       if k in row}, flush=True)  # fmt: skip
    return result


def main(arguments: list[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=Path("sharing.json"))
    parser.add_argument("--cell", choices=("pf_lstm", "pf_gru"), default="pf_lstm")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--members", type=int, default=3, help="of each job")
    parser.add_argument("--particles", type=int, default=20)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--late", action="store_true", help="also without early launches")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a row")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.worker:
        size, early, seconds = json.loads(parsed.worker)
        worker(Size(**size), early, seconds)
        return
    if min(parsed.jobs) < 1 or parsed.seconds <= 0:
        parser.error(f"expected at least one job and some seconds, got {parsed.jobs}, "
                     f"{parsed.seconds}")  # fmt: skip
    if not torch.cuda.is_available():
        parser.error("needs a CUDA device: it times how jobs share one")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    measure(parsed, Size(parsed.cell, members=parsed.members, particles=parsed.particles))


if __name__ == "__main__":
    main()
