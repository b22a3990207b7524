"""The folder of one training job: one process at a time works in it, and finished work is kept.

A worker outlives a Snakemake that was killed, and the next Snakemake starts the same job again. So
a job holds a kernel lock on its folder while it trains, and the second one waits. Records are
written atomically, ``run.json`` last. A job that finds a ``run.json`` of its own parameters, data,
source and selection has nothing to do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pfrnn.errors import PfrnnError
from pfrnn.study.files import digest_of, read_json
from pfrnn.study.provenance import source_digest
from pfrnn.study.records import outputs_of

LOCK = ".lock"
RECORD = "run.json"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold ``folder`` for this process; wait while another process trains in it.

    The kernel ends the lock with the process, also after SIGKILL. Temporary files that a killed
    process left are removed.

    Raises:
        PfrnnError: the folder cannot be written.
    """
    lock = _lock(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            said = f"{folder}: another process works here (perhaps left by a killed run); waiting"
            print(said, file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        raise PfrnnError(
            f"{folder}: cannot be written ({error.strerror}); expected a folder that this user may "
            "write on a disk with space; free it or choose another with --results"
        ) from error
    try:
        for leftover in folder.glob(".*.part"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def is_in_use(folder: Path) -> bool:
    """Whether a live process trains in ``folder``."""
    if not (folder / LOCK).exists():
        return False
    try:
        with _lock(folder).acquire(blocking=False):
            return False
    except Timeout:
        return True


def _lock(folder: Path) -> FileLock:
    # Never a file that stands for a lock: SIGKILL would leave it behind.
    return FileLock(folder / LOCK, fallback_to_soft=False)


def identity_of(
    parameters: Mapping[str, Any], data: str, source: str, selection: Any = None
) -> dict[str, Any]:
    """Return what a job's numbers depend on, as its ``run.json`` has it.

    Args:
        parameters: the block's or final's parameters.
        data: digest of the prepared arrays.
        source: the module that trains; all source that it reaches counts.
        selection: a final's selection; its parameters don't name what was selected.
    """
    return {
        "digest": digest_of(parameters),
        "data_digest": data,
        "source_digest": source_digest(source),
    } | ({} if selection is None else {"selection": selection})


def is_finished(results: Path, job: str, identity: Mapping[str, Any]) -> bool:
    """Whether a job has left all its records, made with exactly this identity.

    Args:
        results: the tier's folder.
        job: the block's or final's id, its folder below ``results``.
        identity: by :func:`identity_of`.
    """
    if not all((results / job / name).is_file() for name in outputs_of(job)):
        return False
    try:
        record = read_json(results / job / RECORD)
    except ValueError:
        return False
    return isinstance(record, dict) and all(
        record.get(name) == value for name, value in identity.items()
    )


def remove_records(results: Path, job: str) -> None:
    """Remove an earlier training's records, ``run.json`` first: without it nothing is finished."""
    for name in outputs_of(job):
        (results / job / name).unlink(missing_ok=True)


def again(folder: Path) -> str:
    """Say how lost or damaged records are made again, for the end of a message."""
    return f"remove {folder} and run the workflow again, or its job: {_command(folder)}"


def _command(folder: Path) -> str:
    commands = {"search": "train", "final": "final"}
    kinds = [place for place, part in enumerate(folder.parts) if part in commands]
    if not kinds:
        return "pfrnn train or pfrnn final"
    job = "/".join(folder.parts[kinds[-1] :])
    return f"`pfrnn {commands[folder.parts[kinds[-1]]]} {job}` with the run's --tier and --params"
