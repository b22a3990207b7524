"""Downloading one file: retry with back-off, resume, stall time-out, and never half a file."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any, NamedTuple

from pfrnn.errors import DataError

TEMPORARY_STATUS = (408, 425, 429, 500, 502, 503, 504)
RANGE_REFUSED = 416
CHUNK = 1 << 16


class NotServedError(DataError):
    """An address doesn't have the file, or can't be reached."""


class Policy(NamedTuple):
    """How hard to try.

    Attributes:
        attempts: connections tried before giving up.
        backoff: seconds before the second attempt; doubled for each further one.
        stall: seconds without a byte after which a connection counts as dead.
    """

    attempts: int = 4
    backoff: float = 1.0
    stall: float = 30.0


def download(url: str, target: Path, policy: Policy = Policy()) -> None:  # noqa: B008
    """Download ``url`` to ``target``; an interrupted transfer is resumed, also by a later call.

    The bytes gather in ``<target>.part``, which is renamed when the announced length is there.

    Raises:
        NotServedError: the address has no such file, or every attempt failed.
        DataError: the disk is full.
    """
    reason = ""
    attempts, attempt = policy.attempts, 0
    while attempt < attempts:
        if attempt:
            time.sleep(policy.backoff * 2 ** (attempt - 1))
        try:
            _transfer(url, target, policy)
        except urllib.error.HTTPError as error:
            reason = f"HTTP status {error.code} ({error.reason})"
            if error.code == RANGE_REFUSED:
                # What lies here is no beginning of that file (or all of it): start over.
                _discard_part(target)
            elif error.code not in TEMPORARY_STATUS:
                raise NotServedError(f"{url}: {reason}") from error
        except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
            reason = _explain(error, policy)
        except urllib.error.URLError as error:
            reason = _explain(error.reason, policy)
            # Nobody there, or no network: one more try, so that being offline costs a second.
            if isinstance(error.reason, ConnectionRefusedError | socket.gaierror):
                attempts = min(attempts, 2)
        except OSError as error:
            raise _disk_error(error, target) from error
        else:
            return
        attempt += 1
    raise NotServedError(f"{url}: {reason}; gave up after {attempt} attempts")


def _transfer(url: str, target: Path, policy: Policy) -> None:
    part = target.with_name(target.name + ".part")
    note = target.with_name(target.name + ".part.json")
    headers = {"User-Agent": "pfrnn", "Accept-Encoding": "identity"}
    start, validator = _resumable(part, note, url)
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": validator}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=policy.stall) as response:
        if not _continues(response, start):
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else None
        # What identifies this version of the file, so that only the same version is continued.
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        note.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
        with part.open("ab" if start else "wb") as output:
            size = _copy(response, output, start, total, target.name)
    if total is not None and size != total:
        raise ConnectionError(f"connection cut after {size:,} of {total:,} bytes")
    part.replace(target)
    note.unlink(missing_ok=True)


def _resumable(part: Path, note: Path, url: str) -> tuple[int, str]:
    """Return (bytes on disk, their version's mark), or (0, "") where nothing can be continued."""
    try:
        record = json.loads(note.read_text(encoding="utf-8"))
        size = part.stat().st_size
    except (OSError, ValueError):
        return 0, ""
    validator = str(record.get("validator", ""))
    # A weak ETag (W/...) does not promise equal bytes.
    if record.get("url") != url or not validator or validator.startswith("W/"):
        return 0, ""
    return size, validator


def _continues(response: Any, start: int) -> bool:
    content_range = response.headers.get("Content-Range", "")
    return bool(start and response.status == 206 and content_range.startswith(f"bytes {start}-"))


def _copy(source: Any, output: IO[bytes], start: int, total: int | None, name: str) -> int:
    from tqdm import tqdm  # type: ignore[import-untyped]

    bar = tqdm(
        total=total, initial=start, unit="B", unit_scale=True, desc=name, leave=False,
        disable=not sys.stderr.isatty(),
    )  # fmt: skip
    size = start
    with bar:
        while chunk := source.read(CHUNK):
            output.write(chunk)
            size += len(chunk)
            bar.update(len(chunk))
    return size


def _explain(reason: Any, policy: Policy) -> str:
    if isinstance(reason, TimeoutError):
        return f"no byte for {policy.stall:g} s (stalled or unreachable)"
    return str(reason) or type(reason).__name__


def _disk_error(error: OSError, target: Path) -> DataError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        # Half a file on a full disk helps nobody; give the space back.
        _discard_part(target)
        return DataError(
            f"{target}: the disk is full ({error.strerror}); free some space, or choose another "
            "folder with --raw-dir"
        )
    return DataError(f"{target}: can't be written: {error}")


def _discard_part(target: Path) -> None:
    for suffix in (".part", ".part.json"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
