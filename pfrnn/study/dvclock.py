"""Keeping DVC and Snakemake from working on the same files at once.

DVC hashes and copies whole folders while Snakemake writes into them; a file that changes in
between would stand in the cache under another file's name. DVC guards its outputs by a table of
readers and writers (``.dvc/tmp/rwlock``) in which every entry names a process; an entry of a dead
process counts for nothing. A Snakemake run enters itself there as the writer of all outputs. Each
of the two then says who is at work, and stops.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pfrnn.errors import PfrnnError

OUTPUTS = ("data/raw", "data/prepared", "results", ".snakemake/metadata")


def hold(folder: Path | str = ".", outputs: Sequence[str] = OUTPUTS) -> bool:
    """Enter this process as the writer of ``outputs`` until it ends.

    Args:
        folder: the repository.
        outputs: paths below it.

    Returns:
        False where there is nothing to guard: no DVC here, or DVC itself started this process
        and holds its stage's entry.

    Raises:
        PfrnnError: DVC is at work on one of them.
    """
    root = Path(folder).resolve()
    if not (root / ".dvc").is_dir() or "DVC_STAGE" in os.environ:
        return False
    try:
        from dvc.fs import localfs
        from dvc.lock import LockError
        from dvc.rwlock import rwlock
    except ImportError:
        return False
    table = root / ".dvc" / "tmp"
    table.mkdir(exist_ok=True)
    command = f"snakemake {' '.join(sys.argv[1:])}".strip()
    paths = [str(root / path) for path in outputs]
    entry = rwlock(str(table), localfs, command, [], paths, hardlink=False)
    try:
        entry.__enter__()
    except LockError as error:
        raise PfrnnError(
            f"DVC is at work in {root}: {str(error).partition(chr(10) * 2)[0]}; wait for it, "
            "then run again"
        ) from error
    atexit.register(entry.__exit__, None, None, None)
    return True
