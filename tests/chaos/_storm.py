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
        environment |= {"OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
        # As a user does after a kill.
        subprocess.run([*command, "--unlock"], cwd=folder, env=environment, capture_output=True)
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=(folder / "output.txt").open("a"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ended(self) -> bool:
        return self.process.poll() is not None


def workers(folder: Path) -> list[int]:
    """Process ids of the training jobs that are alive in a working copy."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            here = (process / "cwd").resolve() == folder.resolve()
        except OSError:
            continue
        if here and command[1:3] == [b"-m", b"pfrnn"] and command[3] in (b"train", b"final"):
            found.append(int(process.name))
    return found


def records(results: Path) -> dict[str, bytes]:
    """The record of each finished training; it has the wall time, so a second one is another."""
    found = {}
    for path in results.glob("*/*/**/run.json"):
        try:
            found[str(path.parent.relative_to(results))] = path.read_bytes()
        except FileNotFoundError:
            continue
    return found


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
    finished: dict[str, bytes] = {}
    run, starts = Run(folder, arguments), 1
    while len(done) < kills:
        if time.monotonic() - began > limit_seconds:
            raise RuntimeError(f"no {kills} kills in {limit_seconds} s: {done}")
        finished = records(results) | finished
        if run.ended():
            if run.process.returncode == 0:
                break
            run, starts = Run(folder, arguments), starts + 1
        if not workers(folder):
            time.sleep(0.05)
            continue
        time.sleep(choose.uniform(*pause))
        alive = workers(folder)
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
    now = records(results)
    twice = [job for job, record in finished.items() if now.get(job) != record]
    return Storm(done, starts, twice)


def numbers(results: Path) -> dict[str, list[dict[str, Any]]]:
    """Every table of a tier without its volatile columns, by path."""
    paths = [results / "results.csv"]
    for kind in ("search", "final"):
        paths += (results / kind).rglob("*.csv")
    tables = {}
    for path in sorted(paths):
        with path.open() as source:
            tables[str(path.relative_to(results))] = [
                {key: value for key, value in row.items() if key not in VOLATILE}
                for row in csv.DictReader(source)
            ]
    return tables
