"""Digests of raw files in every kind that publishers give, and digests of parsed content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def file_digest(path: Path, kind: str = "sha256") -> str:
    """Digest a file's bytes: sha256, sha1, md5, or git (git's blob id)."""
    running: Any = hashlib.new("sha1" if kind == "git" else kind, usedforsecurity=False)
    if kind == "git":
        running.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as source:
        while chunk := source.read(1 << 20):
            running.update(chunk)
    digits: str = running.hexdigest()
    return digits


def is_accepted(path: Path, accepted: Iterable[str]) -> bool:
    """Tell whether a file has one of the digests; ``md5:280a…`` names its kind, else sha256."""
    pairs = [text.rpartition(":") for text in accepted]
    return any(file_digest(path, kind or "sha256") == digits for kind, _, digits in pairs)


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
