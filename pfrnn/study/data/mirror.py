"""The raw-data mirror: a folder or a base URL with one folder a data set (PFRNN_DATA_MIRROR)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

from pfrnn.errors import ConfigError, DataError
from pfrnn.study.data.archives import extract_member
from pfrnn.study.data.base import Card
from pfrnn.study.data.download import NotServedError, Policy, download

VARIABLE = "PFRNN_DATA_MIRROR"


class Mirror(Protocol):
    """Something that may hold a set's raw files."""

    def get(self, card: Card, name: str, target: Path) -> str:
        """Bring one raw file, plain or out of the publisher's zip.

        Returns:
            Where it stands in the mirror, for messages; empty when it isn't there.
        """
        ...

    def get_plain(self, card: Card, name: str, target: Path) -> str:
        """Bring one file under its own name; return its place, empty when it isn't there."""
        ...


def open_mirror(policy: Policy) -> Mirror | None:
    """Return the mirror that PFRNN_DATA_MIRROR names, or None when it is unset or empty.

    Raises:
        ConfigError: it names neither a folder nor an http(s) address.
    """
    place = os.environ.get(VARIABLE, "").strip()
    if not place:
        return None
    if place.startswith(("http://", "https://")):
        return _UrlMirror(place.rstrip("/"), policy)
    folder = Path(place.removeprefix("file://")).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"{VARIABLE}={place}: expected a folder or an http(s) address; no such folder"
        )
    return _FolderMirror(folder)


def zip_candidates(card: Card, name: str) -> Iterator[tuple[str, str]]:
    """Yield (zip's name, member) of the zips that may hold a raw file in a mirror."""
    yield f"{PurePosixPath(name).stem}.zip", name
    for address in card.addresses:
        if name in address.members:
            yield unquote(urlsplit(address.url).path).rpartition("/")[2], address.members[name]


class _FolderMirror:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, card: Card, name: str, target: Path) -> str:
        place = self.get_plain(card, name, target)
        if place:
            return place
        for archive, member in zip_candidates(card, name):
            path = self._folder / card.name / archive
            if archive and path.is_file():
                extract_member(path, member, target, str(path))
                return f"{path}!{member}"
        return ""

    def get_plain(self, card: Card, name: str, target: Path) -> str:
        path = self._folder / card.name / name
        if not path.is_file():
            return ""
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, target)
        except OSError as error:
            target.unlink(missing_ok=True)
            raise DataError(f"{path}: can't be copied from the mirror: {error}") from error
        return str(path)


class _UrlMirror:
    def __init__(self, base: str, policy: Policy) -> None:
        self._base, self._policy = base, policy

    def get(self, card: Card, name: str, target: Path) -> str:
        place = self.get_plain(card, name, target)
        if place:
            return place
        for archive, member in zip_candidates(card, name):
            held = target.with_name(target.name + ".zip")
            url = self.get_plain(card, archive, held) if archive else ""
            if url:
                extract_member(held, member, target, url)
                held.unlink()
                return f"{url}!{member}"
        return ""

    def get_plain(self, card: Card, name: str, target: Path) -> str:
        target.parent.mkdir(parents=True, exist_ok=True)
        url = f"{self._base}/{card.name}/{quote(name)}"
        try:
            download(url, target, self._policy)
        except NotServedError as error:
            if "HTTP status 404" in str(error):
                return ""
            raise
        return url
