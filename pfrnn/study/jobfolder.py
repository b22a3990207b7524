"""The folder of one training job: one process at a time in it, and finished work kept.

A worker outlives a Snakemake that was killed, and the next Snakemake starts the same job again. So
a job holds a kernel lock (``flock``) on its folder while it trains; the second one waits. And
Snakemake removes a job's outputs before it starts the job, also when the job had finished and only
Snakemake's note of it is missing. So a finished job *seals* its records: the folder ``.finished``
keeps a second name (a hard link) of each, with digests and the identity of what was trained. A job
that finds a whole seal of its own identity puts the files back and trains nothing. Whoever reads
records compares them with the seal's digests (:func:`check_seal`): none is changed unnoticed.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pfrnn.errors import PfrnnError, RecordError
from pfrnn.study.files import atomic_path, digest_of, read_json, sha256_file, write_json
from pfrnn.study.provenance import source_digest

LOCK = ".lock"
SEALED = ".finished"
SEAL = "seal.json"
# Ends the second names, so that nobody who looks for records finds them twice.
KEPT = ".kept"
# The record's presence means finished (pfrnn/study/records.py), so it is put back last.
RECORD = "run.json"
# It holds seconds, so no two trainings leave the same one.
HISTORY = "history.csv"
# flock on a file system that has none (some network and user-space ones).
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def alone(
    folder: Path,
    *,
    wait_seconds: float = 48 * 3600.0,
    poll_seconds: float = 0.5,
    say: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Hold ``folder`` for this process; wait while another process trains in it.

    The kernel ends the lock with the process, also after SIGKILL. Temporary files that a killed
    process left are removed.

    Args:
        folder: the job's folder, made when missing.
        wait_seconds: how long to wait for another process.
        poll_seconds: time between two tries.
        say: takes one sentence when there is something to say; stderr when None.

    Raises:
        PfrnnError: the folder can't be written, or stayed in use for ``wait_seconds``.
    """
    say = say or _to_stderr
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Not inheritable (Python's default): a child that outlives the job must not hold it.
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise PfrnnError(
            f"{folder}: can't be written ({error.strerror}); expected a folder that this user may "
            "write on a disk with space; free it or choose another with --results"
        ) from error
    try:
        _lock(handle, folder, wait_seconds, poll_seconds, say)
        for leftover in folder.glob(".*.part"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _lock(
    handle: int, folder: Path, wait_seconds: float, poll_seconds: float, say: Callable[[str], None]
) -> None:
    deadline = time.monotonic() + wait_seconds
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
                say(f"{folder}: process {owner} works here (perhaps left by a killed run); waiting")
                told = True
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            say(f"{folder}: this file system has no locks; going on without one")
            return
        else:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            return
        if time.monotonic() >= deadline:
            raise PfrnnError(
                f"{folder}: another process still works here after {wait_seconds:.0f} s; end it "
                "or wait for it, then run again"
            )
        time.sleep(poll_seconds)


def identity_of(
    parameters: dict[str, Any], data: str, source: str, selection: Any = None
) -> dict[str, Any]:
    """Return what a job's numbers depend on, as digests.

    Args:
        parameters: the block's or final's parameters.
        data: digest of the prepared arrays.
        source: the module that trains; all source that it reaches counts.
        selection: a final's selection; its parameters don't name what was selected.
    """
    return {
        "parameters": digest_of(parameters),
        "data": data,
        "source": source_digest(source),
        "selection": digest_of(selection),
    }


def seal(folder: Path, identity: dict[str, Any], outputs: Iterable[str]) -> bool:
    """Keep a second name of every record in ``folder``, for :func:`unseal`.

    A worker that outlived its Snakemake may seal while the next Snakemake removes the job's
    outputs. What is gone by then can't be put back, so there is no seal, and the next job trains.

    Args:
        folder: the job's folder, with all its records written.
        identity: what the numbers depend on: plain data.
        outputs: names that must be among the records (:func:`pfrnn.study.records.outputs_of`).

    Returns:
        False when a record is missing, and nothing was sealed.
    """
    kept = folder / SEALED
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    digests = {}
    try:
        for path in sorted(folder.iterdir()):
            if path.is_file() and not path.name.startswith((".", "checkpoint")):
                _second_name(path, kept / (path.name + KEPT))
                digests[path.name] = sha256_file(kept / (path.name + KEPT))
    except FileNotFoundError:
        digests = {}
    if not digests.keys() >= set(outputs):
        shutil.rmtree(kept, ignore_errors=True)
        return False
    # Last: a seal without this file is none.
    write_json(kept / SEAL, {"identity": identity, "sha256": digests})
    return True


def unseal(folder: Path, identity: dict[str, Any], outputs: Iterable[str]) -> bool:
    """Put a finished job's records back; the record comes last.

    Returns:
        False when there is nothing to put back: no seal, one of another identity (parameters,
        data or source changed), one that lacks an output, or a damaged file.
    """
    kept = folder / SEALED
    try:
        found = read_json(kept / SEAL)
        if found["identity"] != identity or not found["sha256"].keys() >= {RECORD, *outputs}:
            return False
        names = found["sha256"].items()
        if any(sha256_file(kept / (name + KEPT)) != digest for name, digest in names):
            return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    for name in sorted(found["sha256"], key=lambda name: name == RECORD):
        with atomic_path(folder / name) as temporary:
            # A copy: Snakemake expects outputs that are newer than the job's inputs.
            shutil.copyfile(kept / (name + KEPT), temporary)
        (kept / (name + KEPT)).unlink()
        _second_name(folder / name, kept / (name + KEPT))
    return True


def break_seal(folder: Path) -> None:
    """Remove the seal; before other records than the sealed ones get their ``run.json``."""
    shutil.rmtree(folder / SEALED, ignore_errors=True)


def check_seal(folder: Path, *names: str) -> None:
    """Refuse records that are not the bytes that the job sealed; ``run.json`` always.

    What has no seal passes: DVC brings records and no seals. It also lays the records of another
    commit over those of a training that was sealed here, which then says nothing of them: their
    histories, which hold each epoch's seconds, are others, too.

    Args:
        folder: a job's folder; without ``run.json`` it is at work, and nothing is refused.
        names: records to compare; one that isn't there or wasn't sealed is passed over.

    Raises:
        RecordError: a record has another digest than the seal's, or the seal can't be read.
    """
    digests = _sealed(folder) if (folder / RECORD).is_file() else None
    if digests is None or _of_another_training(folder, digests):
        return
    for name in dict.fromkeys((RECORD, *names)):
        path = folder / name
        if name not in digests or not path.is_file():
            continue
        found = sha256_file(path)
        if found != digests[name]:
            raise RecordError(
                f"{path}: changed since its job finished: sha256 {found[:12]}, expected "
                f"{digests[name][:12]} by {folder / SEALED / SEAL}; {again(folder)}"
            )


def _sealed(folder: Path) -> dict[str, str] | None:
    """The digests that a seal holds; None without a seal."""
    path = folder / SEALED / SEAL
    try:
        digests = {str(name): str(digest) for name, digest in read_json(path)["sha256"].items()}
        if RECORD not in digests:
            raise ValueError(f"no digest of {RECORD}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path}: expected the digests of the job's finished records, got a damaged file "
            f"({error}), so nothing vouches for them; {again(folder)}. Where they are known to be "
            f"right, as from `dvc checkout`, remove {path.parent} instead"
        ) from error
    return digests


def _of_another_training(folder: Path, digests: Mapping[str, str]) -> bool:
    """Whether record and history are both others than the sealed ones, as only a training's are.

    Both must be whole: a cut history is another one, too, and makes no record trustworthy.
    """
    pair = (RECORD, HISTORY)
    others = all(
        name in digests
        and (folder / name).is_file()
        and sha256_file(folder / name) != digests[name]
        for name in pair
    )
    return others and _whole(folder)


def _whole(folder: Path) -> bool:
    """Whether the record is a mapping, and the history ends with a whole line of all fields."""
    try:
        record = read_json(folder / RECORD)
        text = (folder / HISTORY).read_bytes().decode("utf-8")
    except ValueError:
        return False
    lines = list(csv.reader(io.StringIO(text, newline="")))
    ends = text.endswith("\n") and len(lines[-1]) == len(lines[0])
    return isinstance(record, dict) and ends


def again(folder: Path) -> str:
    """Say how a job's lost or changed records are had again, for the end of a message."""
    commands = {"search": "train", "final": "final"}
    kinds = [place for place, part in enumerate(folder.parts) if part in commands]
    if not kinds:
        return "run its job again"
    command, job = commands[folder.parts[kinds[-1]]], "/".join(folder.parts[kinds[-1] :])
    return (
        f"run `pfrnn {command} {job}` with the run's --tier and --params: it puts its own file "
        "back, or trains again where that is lost, too"
    )


def _second_name(path: Path, name: Path) -> None:
    try:
        os.link(path, name)
    except OSError:
        # No hard links on this file system; the copy costs its size and nothing else.
        shutil.copyfile(path, name)


def _to_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
