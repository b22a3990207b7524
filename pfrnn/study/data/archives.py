"""Taking named members out of archives: zip, wheel, tar, and a zip inside a zip."""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from pfrnn.errors import DataError
from pfrnn.study.data.rawbytes import HEAD, is_web_page
from pfrnn.study.files import atomic_path


def extract_member(archive: Path, member: str, target: Path, where: str = "") -> None:
    """Write one member of an archive to ``target``, a path that the archive has no say in.

    Args:
        archive: a zip (a wheel is one) or tar file, compressed or not.
        member: path inside it; ``inner.zip!file`` goes into an archive inside the archive.
        target: where the content goes, atomically.
        where: what messages call the archive; default: its name.

    Raises:
        DataError: not an archive, damaged, without the member, or with a name that climbs out
            of its folder (such an archive was made to do harm; nothing of it is used).
    """
    where = where or archive.name
    try:
        with archive.open("rb") as file, _open_member(file, member, where) as source:
            with atomic_path(target) as temporary, temporary.open("wb") as output:
                shutil.copyfileobj(source, output, 1 << 20)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise DataError(
            f"{where}: damaged archive ({error}); delete it and fetch it again"
        ) from error


@contextlib.contextmanager
def _open_member(file: IO[bytes], member: str, where: str) -> Iterator[IO[bytes]]:
    outer, _, inner = member.partition("!")
    with _open_flat(file, outer, where) as stream:
        if not inner:
            yield stream
            return
        # The inner archive needs a seekable file; a member's stream isn't one for tar.
        buffer = io.BytesIO(stream.read())
        with _open_member(buffer, inner, f"{where}!{outer}") as nested:
            yield nested


@contextlib.contextmanager
def _open_flat(file: IO[bytes], member: str, where: str) -> Iterator[IO[bytes]]:
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as opened:
            name = _choose(opened.namelist(), member, where)
            with opened.open(name) as stream:
                yield stream
        return
    file.seek(0)
    try:
        tar = tarfile.open(fileobj=file)
    except tarfile.ReadError as error:
        raise DataError(
            f"{where}: expected a zip or tar archive, got {_looks_like(file)}"
        ) from error
    with tar:
        name = _choose(tar.getnames(), member, where)
        extracted = tar.extractfile(name)
        if extracted is None:
            raise DataError(f"{where}: member {name!r} is not a regular file")
        with extracted:
            yield extracted


def _choose(names: list[str], member: str, where: str) -> str:
    for name in names:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or name[1:2] == ":":
            raise DataError(
                f"{where}: refused, its member {name!r} climbs out of the archive's folder; "
                "get the archive from the publisher"
            )
    # Some publishers wrap everything in one folder: ``name/member``.
    found = [name for name in names if name == member or name.endswith("/" + member)]
    if not found:
        listed = ", ".join(sorted(names)[:8])
        raise DataError(f"{where}: has no member {member!r}; it holds {listed or 'nothing'}")
    return min(found, key=len)


def _looks_like(file: IO[bytes]) -> str:
    file.seek(0)
    head = file.read(HEAD)
    if is_web_page(head):
        return "an HTML page"
    return "something else" if head.strip() else "an empty file"
