"""How far a tier is, from files alone: records, logs, and the locks that running jobs hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pfrnn.errors import RecordError
from pfrnn.study.evaluate.aggregate import final_rows
from pfrnn.study.evaluate.selection import read_candidates
from pfrnn.study.files import read_mapping
from pfrnn.study.jobfolder import RECORD, again, is_in_use
from pfrnn.study.plan import Plan

# The last line of a log whose job succeeded (workflow/scripts/logged).
ENDED_WELL = "ended well"

State = Literal["done", "running", "failed", "waiting"]


class JobState(NamedTuple):
    """One training job.

    Attributes:
        id: the block's or final's id.
        state: done: its record is there and can be read; running: a live process holds its folder;
            failed: its log ends without a success, or its records are damaged; waiting: it never
            started, or not since what it needs was made, or its record was removed afterwards.
        note: the last line of a running or failed job's log, or what is wrong with its records.
        seconds: wall time of a finished job, where its record says so.
        device: what a running job's log says of CUDA_VISIBLE_DEVICES; empty on the CPU, None where
            there is no log.
    """

    id: str
    state: State
    note: str = ""
    seconds: float | None = None
    device: str | None = ""


def job_states(plan: Plan, results: Path) -> list[JobState]:
    """Return the state of every block and final of a plan, in the plan's order.

    Finished is what the next stage takes: a block's members, as `pfrnn select` reads them, and a
    final's record and scores, as `pfrnn aggregate` does.
    """
    needs = {
        cell.final_id: (
            results / cell.selection_id,
            *(results / block.id / RECORD for block in cell.blocks),
        )
        for cell in plan.cells
    }
    reads: dict[str, Callable[[], Any]] = {
        block.id: partial(read_candidates, plan, block, results) for block in plan.blocks
    }
    reads |= {cell.final_id: partial(final_rows, plan, cell, results) for cell in plan.cells}
    return [job_state(results, job, needs.get(job, ()), read) for job, read in reads.items()]


def job_state(results: Path, job: str, needs: Sequence[Path], read: Callable[[], Any]) -> JobState:
    """Return the state of one job.

    Args:
        results: the tier's folder.
        job: the block's or final's id.
        needs: files without which it cannot start. Where one is missing, or newer than the job's
            log, the log is an earlier run's and says nothing of this one.
        read: reads a finished job's records; a RecordError says what is wrong with them.
    """
    folder, log = results / job, results / "logs" / f"{job}.log"
    if (folder / RECORD).is_file():
        try:
            seconds = read_mapping(folder / RECORD, again(folder)).get("wall_seconds")
            read()
        except RecordError as error:
            return JobState(job, "failed", str(error))
        return JobState(job, "done", seconds=seconds)
    last = last_line(log) if log.is_file() else ""
    if is_in_use(folder):
        device = device_of(log) if log.is_file() else None
        return JobState(job, "running", last, device=device)
    # An empty log: its process has only just started.
    if last in ("", ENDED_WELL) or _is_earlier(log, needs):
        return JobState(job, "waiting")
    return JobState(job, "failed", last, device=device_of(log))


def _is_earlier(log: Path, needs: Iterable[Path]) -> bool:
    """Whether a job hasn't started since the files that it needs were made, by its log's time."""
    ended = log.stat().st_mtime_ns
    return any(not path.is_file() or path.stat().st_mtime_ns > ended for path in needs)


def device_of(log: Path) -> str:
    """Return the device that a job printed when it began (pfrnn/study/cli/train.py)."""
    with log.open("rb") as source:
        found = re.search(rb"CUDA_VISIBLE_DEVICES=(\S+)", source.read(4096))
    return found[1].decode(errors="replace") if found else ""


def last_line(log: Path) -> str:
    """Return a log's last line that is not empty; a progress bar's carriage returns end lines."""
    with log.open("rb") as source:
        source.seek(max(0, log.stat().st_size - 4096))
        text = source.read().decode(errors="replace").replace("\r", "\n")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def seconds_left(states: Iterable[JobState], at_once: int = 1) -> float | None:
    """Return the time left by the mean of the finished jobs; None while none has finished.

    Args:
        states: of all jobs.
        at_once: jobs that run side by side.
    """
    known = list(states)
    done = [state.seconds for state in known if state.seconds is not None]
    if not done:
        return None
    open_jobs = sum(state.state != "done" for state in known)
    return open_jobs * sum(done) / len(done) / max(at_once, 1)
