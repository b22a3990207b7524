"""Bring a tracking store up to date with the run records on disk. The files are the truth.

One experiment a data set; in it a parent run a job (a block of the search, or a final) and a child
run a member (of a final: a repetition). Each parent carries the digest of its record's files, so
importing again changes nothing, and a job that was done anew replaces its older runs.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from pfrnn.tracking.jobs import Job, key_of, read_job, record_digest, record_folders


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock beside the results, so that two imports do not write the same job twice.

    The kernel frees it when the process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".mlflow-import.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Store(Protocol):
    """What the import needs of a tracking store (`pfrnn.tracking.store` talks to MLflow)."""

    def imported(self, experiment: str) -> dict[str, str]:
        """Return {job key: digest} of the jobs that stand completely in an experiment."""

    def replace(self, job: Job) -> None:
        """Remove a job's older runs, also half-written ones, and write its runs."""


class Summary(NamedTuple):
    """What an import did."""

    imported: int
    unchanged: int
    runs: int


def import_results(
    results: Path, store: Store, report: Callable[[str], None] = lambda _: None
) -> Summary:
    """Import every finished job below a tier's results.

    Args:
        results: ``results/<tier>``.
        store: where to.
        report: called with the key of each job that is imported.

    Raises:
        RecordError: a record's file is missing or can't be read.
    """
    known: dict[str, dict[str, str]] = {}
    imported = unchanged = runs = 0
    for folder in record_folders(results):
        experiment = folder.relative_to(results).parts[1]
        if experiment not in known:
            known[experiment] = store.imported(experiment)
        if known[experiment].get(key_of(folder, results)) == record_digest(folder):
            unchanged += 1
            continue
        job = read_job(folder, results)
        store.replace(job)
        report(job.key)
        imported += 1
        runs += 1 + len(job.members)
    return Summary(imported, unchanged, runs)
