"""Bring a tracking store up to date with the run records on disk. The files are the truth.

One experiment a data set; in it a parent run a job (a block of the search, or a final) and a child
run a member (of a final: a repetition). Each parent carries the digest of its record's files, so
importing again changes nothing, and a job that was done anew replaces its older runs.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pfrnn.study.track.jobs import Job, key_of, read_job, record_digest, record_folders
from pfrnn.study.track.live import live_digest, live_folders, read_live


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock beside the results, so that two imports do not write the same job twice.

    The kernel frees it when the process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".mlflow-import.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Model(NamedTuple):
    """A model to log and to register.

    Attributes:
        name: registered name.
        folder: what ``pfrnn.study.train.serving.export`` wrote.
        example: its example input.
        outputs: size of a prediction's last axis.
        task: regression, classification or localization.
    """

    name: str
    folder: Path
    example: Mapping[str, Any]
    outputs: int
    task: str


class Attachments(NamedTuple):
    """Files and the model that belong to a job's parent run."""

    files: Sequence[Path] = ()
    model: Model | None = None


class Store(Protocol):
    """What the import needs of a tracking store (`pfrnn.study.track.store` talks to MLflow)."""

    def imported(self, experiment: str) -> dict[str, str]:
        """Return {job key: digest} of the jobs that stand completely in an experiment."""

    def replace(self, job: Job, attached: Attachments) -> None:
        """Remove a job's older runs, also half-written ones, and write its runs."""


class Summary(NamedTuple):
    """What an import did."""

    imported: int
    unchanged: int
    runs: int


class Options(NamedTuple):
    """What an import may know besides the records.

    Attributes:
        report: called with the key of each job that is imported.
        tags: job id -> further tags: what only the configuration knows.
        attach: (record folder, empty folder to write to) -> what belongs to the parent run.
        live: also jobs that are still training.
    """

    report: Callable[[str], None] = lambda _: None
    tags: Mapping[str, Mapping[str, str]] = {}
    attach: Callable[[Path, Path], Attachments] = lambda folder, scratch: Attachments()
    live: bool = False


def import_results(results: Path, store: Store, options: Options | None = None) -> Summary:
    """Import every finished job below a tier's results.

    Args:
        results: ``results/<tier>``.
        store: where to.
        options: see :class:`Options`.

    Raises:
        RecordError: a record's file is missing or can't be read.
        PfrnnError: the store does not answer (any more); importing again goes on from there.
    """
    chosen = options or Options()
    known: dict[str, dict[str, str]] = {}
    imported = unchanged = runs = 0
    folders = [(folder, False) for folder in record_folders(results)]
    if chosen.live:
        folders += [(folder, True) for folder in live_folders(results)]
    for folder, live in folders:
        experiment = folder.relative_to(results).parts[1]
        if experiment not in known:
            known[experiment] = store.imported(experiment)
        digest = live_digest(folder) if live else record_digest(folder)
        if known[experiment].get(key_of(folder, results)) == digest:
            unchanged += 1
            continue
        job_id = folder.relative_to(results).as_posix()
        with tempfile.TemporaryDirectory(prefix="pfrnn-") as scratch:
            if live:
                job, attached = read_live(folder, results), Attachments()
            else:
                job = read_job(folder, results, chosen.tags.get(job_id, {}))
                attached = chosen.attach(folder, Path(scratch))
            store.replace(job, attached)
        chosen.report(job.key)
        imported += 1
        runs += 1 + len(job.members)
    return Summary(imported, unchanged, runs)
