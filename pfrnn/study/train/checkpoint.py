"""Checkpoints that a crash, a full disk or a flipped bit can't turn into wrong numbers.

A file is one line, the SHA-256 of the rest, then what ``torch.save`` writes. Writing keeps the
previous good file as ``<name>.previous``; reading falls back to it and says so.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
from pathlib import Path
from typing import Any

import torch

from pfrnn.errors import RecordError
from pfrnn.study.files import atomic_path

log = logging.getLogger(__name__)


def previous(path: Path) -> Path:
    """Name of the checkpoint before the last one."""
    return path.with_name(path.name + ".previous")


def kept_for(path: Path, identity: str) -> Path:
    """Name under which a checkpoint of other numbers waits until a job asks for it again."""
    return path.with_name(f"{path.stem}-{identity}{path.suffix}")


def set_aside(path: Path, identity: str) -> Path:
    """Move a checkpoint and its predecessor out of the way of a job whose state they are not.

    Args:
        path: where the job saves its own.
        identity: whose state they are.

    Returns:
        Where the checkpoint is now.
    """
    kept = kept_for(path, identity)
    for one, to in ((path, kept), (previous(path), previous(kept))):
        if one.exists():
            one.replace(to)
    return kept


def take_back(path: Path, identity: str) -> None:
    """Undo :func:`set_aside`, where it has kept something for ``identity``."""
    kept = kept_for(path, identity)
    for one, to in ((kept, path), (previous(kept), previous(path))):
        if one.exists():
            one.replace(to)


def save(path: Path, state: Any) -> None:
    """Write ``state`` (tensors and plain data); the file that stood there becomes the previous."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    with atomic_path(path) as temporary:
        with temporary.open("wb") as target:
            target.write(hashlib.sha256(payload).hexdigest().encode() + b"\n")
            target.write(payload)
        if path.exists():
            # A hard link first: at no moment is there no good file under one of the two names.
            previous(path).unlink(missing_ok=True)
            try:
                os.link(path, previous(path))
            except OSError:
                # A file system without hard links; a full disk shows in the rename that follows.
                path.replace(previous(path))


def _read(path: Path) -> Any:
    try:
        digest, _, payload = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise RecordError(f"{path}: unreadable checkpoint: {error.strerror}") from error
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise RecordError(f"{path}: damaged checkpoint: its bytes don't match its digest")
    return torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")


def load(path: Path) -> Any | None:
    """Read the last good checkpoint; None when there is none.

    A damaged file is reported in the log and the previous one is used; when that is damaged too,
    training starts anew, which costs time and no correctness.
    """
    for candidate in (path, previous(path)):
        if not candidate.exists():
            continue
        try:
            return _read(candidate)
        except RecordError as error:
            log.warning("%s; trying the one before", error)
    return None


def remove(path: Path) -> None:
    """Remove a checkpoint and its predecessor."""
    path.unlink(missing_ok=True)
    previous(path).unlink(missing_ok=True)
