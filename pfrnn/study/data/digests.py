"""Digests of raw files in every kind that publishers give, and digests of parsed content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def file_digests(path: Path, kinds: Iterable[str] = ("sha256",)) -> dict[str, str]:
    """Digest a file's bytes in one pass.

    Args:
        path: the file.
        kinds: any of ``sha256``, ``sha1``, ``md5`` and ``git`` (git's blob id: SHA-1 over a
            header with the size, then the bytes).

    Returns:
        kind -> hexadecimal digest.
    """
    hashes = {kind: _start(kind, path) for kind in kinds}
    with path.open("rb") as source:
        while chunk := source.read(1 << 20):
            for running in hashes.values():
                running.update(chunk)
    return {kind: running.hexdigest() for kind, running in hashes.items()}


def _start(kind: str, path: Path) -> Any:
    if kind == "git":
        return hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    if kind == "sha256":
        return hashlib.sha256()
    return hashlib.new(kind, usedforsecurity=False)


def parse_digest(text: str) -> tuple[str, str]:
    """Split ``md5:280a…`` into its kind and its hexadecimal digits; no kind means sha256."""
    kind, separator, digits = text.rpartition(":")
    return (kind if separator else "sha256"), digits


def is_accepted(path: Path, accepted: Iterable[str]) -> bool:
    """Tell whether a file has one of the accepted digests."""
    wanted = [parse_digest(text) for text in accepted]
    found = file_digests(path, {kind for kind, _ in wanted})
    return any(found[kind] == digits for kind, digits in wanted)


def arrays_digest(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Digest named arrays by their content: names, types, shapes and values, in name order.

    The digest is the same however and wherever the arrays are stored. -0.0 counts as 0.0.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> arrays_digest({"a": np.arange(3)}) == arrays_digest({"a": np.array([0, 1, 2])})
        True
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.asarray(arrays[name])
        if values.dtype.kind == "f":
            values = values + values.dtype.type(0)
        if values.dtype.kind in "OUS":
            cells = [str(cell).encode() for cell in values.ravel()]
            content = b"".join(len(cell).to_bytes(4, "little") + cell for cell in cells)
            kind = "text"
        else:
            little = values.astype(values.dtype.newbyteorder("<"), copy=False)
            content = np.ascontiguousarray(little).tobytes()
            kind = little.dtype.str
        digest.update(f"{name}\0{kind}\0{values.shape}\0".encode())
        digest.update(content)
    return digest.hexdigest()
