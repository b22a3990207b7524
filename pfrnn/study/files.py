"""Writing files so that a reader never sees half of one, and digests of content."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pfrnn.errors import RecordError


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Give a temporary name beside ``path``; rename it onto ``path`` when the block succeeds.

    The data are flushed to disk before the rename, so a power cut leaves the old file or the new
    one, never half. When the block raises, the temporary file is removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes files private; give the mode that a plain open() would have given.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text atomically, with LF line ends on every platform."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path | str, value: Any) -> None:
    """Write JSON atomically: sorted keys, indented, NaN refused."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def read_mapping(path: Path, cure: str) -> dict[str, Any]:
    """Read a JSON file that must be there and hold a mapping.

    Args:
        path: the file.
        cure: what to do about a lost or damaged one, for the end of the message.

    Raises:
        RecordError: it is missing, empty, cut, not JSON, or holds something else.
    """
    try:
        found = read_json(path)
    except FileNotFoundError as error:
        raise RecordError(f"{path}: no such file; {cure}") from error
    except ValueError as error:
        came = f"not JSON ({error})" if path.stat().st_size else "an empty file"
        raise RecordError(f"{path}: expected a JSON mapping, got {came}; {cure}") from error
    if not isinstance(found, dict):
        raise RecordError(f"{path}: expected a JSON mapping, got {type(found).__name__}; {cure}")
    return found


def sha256_file(path: Path | str, progress: Callable[[int], None] | None = None) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as source:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            if progress is not None:
                progress(len(chunk))
    return digest.hexdigest()


def canonical_json(value: Any) -> str:
    """Serialise plain data so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(value: Any, length: int = 10) -> str:
    """Digest plain data (dicts, lists, numbers, strings) into ``length`` hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]
