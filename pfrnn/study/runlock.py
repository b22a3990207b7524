"""Telling a live Snakemake from the lock files that a killed one left.

Snakemake's own locks are plain files: after SIGKILL or a power cut they stay, and the next run
stops. So the run also holds a kernel lock (``flock``) on ``.snakemake/pfrnn.lock``, which ends with
its process whatever happens. Whoever can take that lock knows that no run is alive in the folder.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pfrnn.errors import PfrnnError

LOCK = Path(".snakemake") / "pfrnn.lock"
SNAKEMAKE_LOCKS = Path(".snakemake") / "locks"


def hold(folder: Path | str = ".") -> int | None:
    """Take the run's kernel lock until this process ends.

    Returns:
        The open handle, or None when another live process holds the lock.
    """
    path = Path(folder) / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
    return handle


def holder(folder: Path | str = ".") -> str:
    """Return the process id that the lock's holder wrote, as text; empty when there is none."""
    path = Path(folder) / LOCK
    return path.read_text().strip() if path.is_file() else ""


def begin_run(folder: Path | str = ".") -> list[Path]:
    """Take the run's kernel lock for good and remove the lock files of a run that was killed.

    Returns:
        The files removed.

    Raises:
        PfrnnError: a run is alive in this folder; nothing was removed.
    """
    if hold(folder) is None:
        raise _alive(folder)
    return _remove(folder)


def stale_locks(folder: Path | str = ".") -> list[Path]:
    """Return Snakemake's lock files in ``folder``; they are stale if :func:`hold` succeeded."""
    return sorted((Path(folder) / SNAKEMAKE_LOCKS).glob("*.lock"))


def unlock(folder: Path | str = ".") -> list[Path]:
    """Remove the lock files of a run that is no longer alive.

    Returns:
        The files removed; empty when there were none.

    Raises:
        PfrnnError: a run is alive in this folder; nothing was removed.
    """
    if not (Path(folder) / LOCK).parent.is_dir():
        return []  # Snakemake never ran here: nothing to remove, and no folder to make
    handle = hold(folder)
    if handle is None:
        raise _alive(folder)
    try:
        return _remove(folder)
    finally:
        os.close(handle)


def _alive(folder: Path | str) -> PfrnnError:
    return PfrnnError(
        f"a run is alive in {Path(folder).resolve()} (process {holder(folder)}); "
        "wait for it or end it first; nothing was removed"
    )


def _remove(folder: Path | str) -> list[Path]:
    found = stale_locks(folder)
    for path in found:
        path.unlink(missing_ok=True)
    return found
