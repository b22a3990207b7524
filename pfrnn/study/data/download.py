"""Getting one file: by HTTP with retries and resume, out of a wheel, out of an archive.

The large publishers' archives come from slow servers, so a cut transfer is continued where it
stopped, also by a later call. pooch can't do that; the rest of it would be ours to wrap.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pfrnn.errors import DataError
from pfrnn.study.files import atomic_path

WHEEL = "pypi:"
ATTEMPTS = 4
BACKOFF = 1.0  # Seconds before the second attempt; doubled for each further one.
STALL = 30.0  # Seconds without a byte after which a connection counts as dead.
TEMPORARY = (408, 416, 425, 429, 500, 502, 503, 504)
# Object stores answer 403 for what they don't have.
ABSENT = (401, 403, 404, 410)


class NotServedError(DataError):
    """An address cannot be reached, or does not have the file (``absent``)."""

    absent = False


def download(url: str, target: Path) -> None:
    """Download ``url``, or the wheel ``pypi:name==version`` through pip, to ``target``.

    Raises:
        NotServedError: the address has no such file, or every attempt failed.
    """
    if url.startswith(WHEEL):
        return _download_wheel(url, target)
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(BACKOFF * 2 ** (attempt - 1))
        try:
            return _transfer(url, target)
        except urllib.error.HTTPError as error:
            reason = f"HTTP status {error.code} ({error.reason})"
            if error.code == 416:
                # What lies here is not the beginning of that file: start over.
                target.with_name(target.name + ".part").unlink(missing_ok=True)
            if error.code not in TEMPORARY:
                failure = NotServedError(f"{url}: {reason}")
                failure.absent = error.code in ABSENT
                raise failure from error
        except urllib.error.URLError as error:
            reason = str(error.reason) or "unreachable"
            if isinstance(error.reason, ConnectionRefusedError | socket.gaierror):
                raise NotServedError(f"{url}: {reason}") from error
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
        except OSError as error:
            raise DataError(f"{target}: cannot be written: {error}") from error
    raise NotServedError(f"{url}: {reason}; gave up after {ATTEMPTS} attempts")


def _transfer(url: str, target: Path) -> None:
    """Append to ``<target>.part`` what is missing; rename it when all of it is there."""
    part = target.with_name(target.name + ".part")
    note = target.with_name(target.name + ".part.json")
    headers = {"User-Agent": "pfrnn", "Accept-Encoding": "identity"}
    start, version = _resumable(part, note, url)
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=STALL) as response:
        found = response.headers
        if response.status != 206 or not found.get("Content-Range", "").startswith(
            f"bytes {start}-"
        ):
            start = 0
        # What identifies this version of the file, so that only the same version is continued.
        version = found.get("ETag") or found.get("Last-Modified") or ""
        note.write_text(json.dumps({"url": url, "version": version}), encoding="utf-8")
        with part.open("ab" if start else "wb") as output:
            shutil.copyfileobj(response, output, 1 << 16)
        length = found.get("Content-Length")
    size = part.stat().st_size
    if length is not None and size != start + int(length):
        raise ConnectionError(f"connection cut after {size:,} of {start + int(length):,} bytes")
    part.replace(target)
    note.unlink()


def _resumable(part: Path, note: Path, url: str) -> tuple[int, str]:
    """Return (bytes on disk, their version), or (0, "") where nothing can be continued."""
    try:
        record: Any = json.loads(note.read_text(encoding="utf-8"))
        size, version = part.stat().st_size, str(record["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""
    # A weak ETag (W/...) does not promise equal bytes.
    good = record.get("url") == url and version and not version.startswith("W/")
    return (size, version) if good else (0, "")


def _download_wheel(url: str, target: Path) -> None:
    """Let pip get the wheel: it knows the index, its credentials and its proxies."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", folder]
        command.append(url.removeprefix(WHEEL))
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise NotServedError(f"{url}: pip download failed: {lines[-1]}")
        wheels[0].replace(target)


def extract_member(archive: Path, member: str, target: Path) -> None:
    """Write one member of an archive to ``target``, a path that the archive has no say in.

    Args:
        archive: a zip (a wheel is one) or tar file, compressed or not.
        member: path inside it, perhaps below a further folder; ``inner.zip!file`` goes into an
            archive inside the archive.
        target: where the content goes, atomically.

    Raises:
        DataError: not an archive, damaged, or without the member.
    """
    try:
        with archive.open("rb") as file, _open_member(file, member) as source:
            with atomic_path(target) as temporary, temporary.open("wb") as output:
                shutil.copyfileobj(source, output, 1 << 20)
    except KeyError as error:
        raise DataError(f"{archive}: has no member {member!r}; it holds {error.args[0]}") from error
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        raise DataError(
            f"{archive}: not an archive, or damaged ({error}); delete it and fetch it again"
        ) from error


@contextlib.contextmanager
def _open_member(file: IO[bytes], member: str) -> Iterator[IO[bytes]]:
    """Open a member of a zip or tar file."""
    outer, _, inner = member.partition("!")
    is_zip = zipfile.is_zipfile(file)
    file.seek(0)
    with zipfile.ZipFile(file) if is_zip else tarfile.open(fileobj=file) as opened:
        if isinstance(opened, zipfile.ZipFile):
            stream: IO[bytes] | None = opened.open(_choose(opened.namelist(), outer))
        else:
            stream = opened.extractfile(_choose(opened.getnames(), outer))
        if stream is None:
            raise ValueError(f"member {outer!r} is not a regular file")
        with stream:
            if not inner:
                yield stream
                return
            # The inner archive needs a seekable file.
            with _open_member(io.BytesIO(stream.read()), inner) as nested:
                yield nested


def _choose(names: list[str], member: str) -> str:
    # Some publishers wrap everything in one folder: ``name/member``.
    wanted = PurePosixPath(member).parts
    found = [name for name in names if PurePosixPath(name).parts[-len(wanted) :] == wanted]
    if not found:
        raise KeyError(", ".join(sorted(names)[:8]) or "nothing")
    return min(found, key=len)
