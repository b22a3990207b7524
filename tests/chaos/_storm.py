"""Random kills of workers and of Snakemake itself, and what must be equal afterwards."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

# Columns that tell when and where, not what.
VOLATILE = ("seconds", "search_seconds", "final_seconds", "device", "commit")


class Kill(NamedTuple):
    """One disturbance."""

    victim: str
    signal: str
    seconds: float


class Storm(NamedTuple):
    """What happened.

    Attributes:
        kills: the disturbances.
        starts: how often Snakemake was started.
        twice: jobs that were trained again after they had finished.
    """

    kills: list[Kill]
    starts: int
    twice: list[str]


def schedule(kills: int, choose: random.Random) -> list[tuple[str, signal.Signals]]:
    """Victims and signals in random order: a third is Snakemake, and each victim gets both signals.

    The numbers are fixed and only the order is drawn. Were each victim drawn by itself, some storms
    would spare Snakemake altogether, depending on when its workers happen to be alive.
    """
    snakemakes = max(2, kills // 3)
    victims = ["snakemake"] * snakemakes + ["worker"] * (kills - snakemakes)
    signals = (signal.SIGTERM, signal.SIGKILL)
    planned = [(victim, signals[number % 2]) for number, victim in enumerate(victims)]
    choose.shuffle(planned)
    return planned


class Run:
    """One Snakemake in a working copy, in a session of its own."""

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "snakemake", "--cores", "2", *arguments],
            cwd=folder,
            env=environment | {"OMP_NUM_THREADS": "1"},
            stdout=(folder / "output.txt").open("a"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ended(self) -> bool:
        return self.process.poll() is not None


def workers(results: Path) -> list[int]:
    """Process ids of the training jobs that are alive."""
    found = []
    for lock in results.glob("*/**/.lock"):
        text = lock.read_text().strip()
        try:
            command = Path(f"/proc/{text}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pfrnn" in command and (b"train" in command or b"final" in command):
            found.append(int(text))
    return found


def seals(results: Path) -> dict[str, tuple[int, int]]:
    """What identifies each finished training: a second one would make a new file."""
    return {
        str(seal.parent.parent.relative_to(results)): (
            seal.stat().st_mtime_ns,
            seal.stat().st_ino,
        )
        for seal in results.glob("*/**/.finished/seal.json")
    }


def storm(
    folder: Path,
    results: Path,
    arguments: tuple[str, ...],
    kills: int,
    pause: tuple[float, float],
    seed: int,
    limit_seconds: float,
) -> Storm:
    """Run the tier under random kills until it is done.

    Args:
        folder: the working copy.
        results: the tier's results.
        arguments: Snakemake's.
        kills: how many (see ``schedule``), at least 4.
        pause: shortest and longest time in seconds between seeing a worker and the kill.
        seed: of the choices.
        limit_seconds: bound on the whole.
    """
    choose = random.Random(seed)
    began = time.monotonic()
    planned = schedule(kills, choose)
    done: list[Kill] = []
    finished: dict[str, tuple[int, int]] = {}
    run, starts = Run(folder, arguments), 1
    while len(done) < kills:
        if time.monotonic() - began > limit_seconds:
            raise RuntimeError(f"no {kills} kills in {limit_seconds} s: {done}")
        finished |= {job: seal for job, seal in seals(results).items() if job not in finished}
        if run.ended():
            if run.process.returncode == 0:
                break
            run, starts = Run(folder, arguments), starts + 1
        if not workers(results):
            time.sleep(0.05)
            continue
        time.sleep(choose.uniform(*pause))
        alive = workers(results)
        # A victim that is gone by now stays planned for the next time.
        victim, number = planned[len(done)]
        try:
            if victim == "snakemake":
                if run.ended():
                    continue
                run.process.send_signal(number)
                if number == signal.SIGKILL:
                    run.process.wait()
            elif alive:
                os.kill(choose.choice(alive), number)
            else:
                continue
        except ProcessLookupError:
            continue
        done.append(Kill(victim, number.name, round(time.monotonic() - began, 1)))
    run.process.wait(timeout=limit_seconds)
    while run.process.returncode != 0 and starts < kills * 2 + 2:
        run, starts = Run(folder, arguments), starts + 1
        run.process.wait(timeout=limit_seconds)
    if run.process.returncode != 0:
        raise RuntimeError((folder / "output.txt").read_text()[-6000:])
    now = seals(results)
    twice = [job for job, seal in finished.items() if now.get(job) != seal]
    return Storm(done, starts, twice)


def numbers(results: Path) -> dict[str, list[dict[str, Any]]]:
    """Every table of a tier without its volatile columns, by path."""
    paths = [results / "results.csv"]
    for kind in ("search", "final"):
        paths += [p for p in (results / kind).rglob("*.csv") if ".finished" not in p.parts]
    tables = {}
    for path in sorted(paths):
        with path.open() as source:
            tables[str(path.relative_to(results))] = [
                {key: value for key, value in row.items() if key not in VOLATILE}
                for row in csv.DictReader(source)
            ]
    return tables
