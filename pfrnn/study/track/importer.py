"""Bring a tracking store up to date with the run records on disk. The files are the truth.

One experiment a data set; in it a parent run a job (a block of the search, or a final) and a child
run a member (of a final: a repetition). Each parent carries the digest of its record's files, so
importing again changes nothing, a job in training shows how far it is, and one that was done again
replaces its older runs.
"""

from __future__ import annotations

import fcntl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pfrnn.study.plan import Plan
from pfrnn.study.track.attachments import artifacts, model_of, planned_tags
from pfrnn.study.track.jobs import job_folders, key_of, read_job, record_digest
from pfrnn.study.track.store import MlflowStore


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock beside the results, so that two imports do not write the same job twice.

    The kernel frees it when the process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".mlflow-import.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Summary(NamedTuple):
    """What an import did."""

    imported: int
    unchanged: int
    runs: int


def import_results(
    results: Path, store: MlflowStore, plan: Plan | None = None, models: bool = True
) -> Summary:
    """Import every job below a tier's results, finished or in training.

    Args:
        results: ``results/<tier>``.
        store: where to.
        plan: the tier's plan, which knows the cells that a job feeds; None without one.
        models: whether to log the models of selected finals.

    Raises:
        RecordError: a file of a record is missing or cannot be read.
        StoreError: the store failed; importing again goes on from there.
    """
    tags = planned_tags(plan) if plan else {}
    known: dict[str, dict[str, str]] = {}
    imported = unchanged = runs = 0
    for folder in job_folders(results):
        job_id = folder.relative_to(results).as_posix()
        dataset = job_id.split("/")[1]
        if dataset not in known:
            known[dataset] = store.imported(dataset)
        if known[dataset].get(key_of(folder, results)) == record_digest(folder):
            unchanged += 1
            continue
        job = read_job(folder, results, tags.get(job_id))
        with tempfile.TemporaryDirectory(prefix="pfrnn-") as scratch:
            if job.running:
                store.replace(job)
            else:
                model = None
                if plan and models:
                    model = model_of(job_id, results, plan, Path(scratch) / "model")
                store.replace(job, artifacts(folder, Path(scratch)), model)
        print(f"imported {job.key}", file=sys.stderr, flush=True)
        imported += 1
        runs += 1 + len(job.members)
    return Summary(imported, unchanged, runs)
