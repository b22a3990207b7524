"""A run of the smoke tier that several tests read: once for all of xdist's processes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from _copy import Copy

# Longer than the smoke tier's own two epochs, so that a job can be met in the middle.
EPOCHS = "training: {max_epochs: 30, patience: 30}\n"


def undisturbed(factory: pytest.TempPathFactory) -> Copy:
    """A copy in which the smoke tier has run with ``EPOCHS``; for reading alone."""
    return once(factory, "undisturbed", EPOCHS)


def once(factory: pytest.TempPathFactory, name: str, overlay: str = "") -> Copy:
    """A copy in which the smoke tier has run; output.txt has what Snakemake said.

    Args:
        factory: where it lies.
        name: of the folder.
        overlay: parameters on top of the tier's.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            return _run(folder, overlay)
        if not (folder / "output.txt").exists():
            raise RuntimeError(f"{name}: the smoke tier failed for another test, see there")
        return Copy.at(folder)


def _run(folder: Path, overlay: str) -> Copy:
    folder.mkdir()
    copy = Copy(folder)
    options: tuple[str, ...] = ()
    if overlay:
        (folder / "overlay.yaml").write_text(overlay)
        options = ("--configfile", "overlay.yaml")
    done = copy.snakemake("--cores", "2", *options)
    if done.returncode:
        logs = "\n".join(
            f"== {log}\n{log.read_text()[-2000:]}" for log in folder.rglob("logs/**/*.log")
        )
        raise RuntimeError(f"{done.stdout}\n{logs}")
    (folder / "output.txt").write_text(done.stdout)
    return copy
