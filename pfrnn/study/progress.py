"""How far a tier is, from files alone: records, logs, and the locks that running jobs hold."""

from __future__ import annotations

import fcntl
import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pfrnn.errors import RecordError
from pfrnn.study.evaluate.aggregate import final_rows
from pfrnn.study.evaluate.selection import read_candidates
from pfrnn.study.files import read_mapping
from pfrnn.study.jobfolder import LOCK, SEAL, SEALED, again
from pfrnn.study.plan import Plan

# Longest silence of a running job's log: an epoch, or the test of a large final.
_QUIET_SECONDS = 900
# The last line of a log whose job succeeded (workflow/scripts/logged).
ENDED_WELL = "ended well"

State = Literal["done", "running", "failed", "waiting"]


class JobState(NamedTuple):
    """One training job.

    Attributes:
        id: the block's or final's id.
        state: done: its record is complete; running: a live process holds its log or its folder;
            failed: it ended without a record (also when it was killed), or what it recorded is
            damaged, changed or lost; waiting: it never started,
            or not since what it needs was made, or its record was removed after a success.
        note: the last line of a running or failed job's log; of one started by hand, that it has
            none; what is wrong with its records.
        seconds: wall time of a finished job, where its record says so.
        device: what a running job's log says of CUDA_VISIBLE_DEVICES; empty on the CPU, None where
            nothing says it.
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
            *(results / block.id / "run.json" for block in cell.blocks),
        )
        for cell in plan.cells
    }
    reads: dict[str, Callable[[], Any]] = {
        block.id: partial(read_candidates, plan, block, results) for block in plan.blocks
    }
    reads |= {cell.final_id: partial(final_rows, plan, cell, results) for cell in plan.cells}
    return [job_state(results, job, needs.get(job, ()), read) for job, read in reads.items()]


def job_state(
    results: Path,
    job: str,
    needs: Sequence[Path] = (),
    read: Callable[[], Any] | None = None,
) -> JobState:
    """Return the state of one job.

    Args:
        results: the tier's folder.
        job: the block's or final's id.
        needs: files without which it can't start. Where one is missing, or newer than the job's
            log, the log is an earlier run's and says nothing of this one.
        read: reads a finished job's records; a RecordError says what is wrong with them.
    """
    record = results / job / "run.json"
    if record.is_file():
        return _recorded(job, record, read)
    log = results / "logs" / f"{job}.log"
    if log.is_file() and _locked(log):
        return JobState(job, "running", last_line(log), device=device_of(log))
    # `pfrnn train` by hand writes no log, and beside an older one's log it is what counts.
    lock = results / job / LOCK
    if lock.is_file() and _locked(lock):
        process = lock.read_text(errors="replace").strip()
        return JobState(job, "running", f"started by hand, process {process}", device=None)
    if log.is_file():
        last = last_line(log)
        if last == ENDED_WELL or _earlier(log, needs):
            return JobState(job, "waiting")
        return JobState(job, "failed", last, device=device_of(log))
    # A whole seal without a record: it had finished, and its files will be put back.
    if lock.is_file() and not (lock.parent / SEALED / SEAL).is_file():
        return JobState(job, "failed", "started by hand, so it has no log; ended without a record")
    return JobState(job, "waiting")


def _earlier(log: Path, needs: Iterable[Path]) -> bool:
    """Whether a job hasn't started since the files that it needs were made, by its log's time."""
    ended = log.stat().st_mtime_ns
    return any(not path.is_file() or path.stat().st_mtime_ns > ended for path in needs)


def device_of(log: Path) -> str:
    """Return the device that a job printed when it began (pfrnn/study/cli/_device.py)."""
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


def _recorded(job: str, record: Path, read: Callable[[], Any] | None) -> JobState:
    """Of a job whose record is there: done, unless that or what it vouches for can't be read."""
    try:
        run = read_mapping(record, again(record.parent))
        if read is not None:
            read()
    except RecordError as error:
        return JobState(job, "failed", str(error))
    value = run.get("wall_seconds")
    return JobState(job, "done", seconds=float(value) if isinstance(value, int | float) else None)


def _locked(log: Path) -> bool:
    """Whether a live process holds a log (workflow/scripts/logged) or a folder's lock."""
    with log.open("rb") as source:
        try:
            fcntl.flock(source, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            # No locks on this file system: a log that grew lately has a live writer.
            return time.time() - log.stat().st_mtime < _QUIET_SECONDS
    return False
