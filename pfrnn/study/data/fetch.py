"""Fetching a data set's raw files: what lies in its folder, the mirror, then the addresses.

Files gather in a staging folder, are verified there, and only then move to ``data/raw/<set>/``,
each by one rename; ``fetch.json`` is written last. One kernel lock a set keeps processes apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from pfrnn.errors import ConfigError, DataError, MissingDataError
from pfrnn.study.data.base import Address, Card, Dataset
from pfrnn.study.data.digests import file_digest, is_accepted
from pfrnn.study.data.download import NotServedError, download, extract_member
from pfrnn.study.data.state import (
    MEMORY,
    PARTIAL,
    RECORD,
    RawState,
    cures,
    inspect_raw,
    missing_files,
    read_record,
)
from pfrnn.study.files import write_json

MIRROR = "PFRNN_DATA_MIRROR"


class Staged(NamedTuple):
    """Where a staged file came from, in words, and whether a known archive held it."""

    origin: str
    trusted: bool = False


Source = Callable[[str, Path], Staged | None]  # (raw file name, target) -> None: not there


def fetch(dataset: Dataset, raw_dir: Path, allow_unverified: bool = False) -> RawState:
    """Bring a data set's raw files to ``raw_dir/<set>/`` and verify them.

    Files that are there already are verified and kept; nothing is asked of the network then.

    Args:
        dataset: the data set.
        raw_dir: parent of the raw folders.
        allow_unverified: accept files that no digest knows; their state says so ever after.

    Raises:
        MissingDataError: neither the mirror nor any address gave the files; says why, and the
            two ways to add them.
        DataError: what was found cannot be read or is not the publisher's.
    """
    card = dataset.card
    folder = raw_dir / card.name
    if not card.files:
        return inspect_raw(dataset, folder)
    with _lock(raw_dir, card.name), _downloads(folder) as downloads:
        if not missing_files(card, folder):
            state = inspect_raw(dataset, folder, allow_unverified)
            _record(card, folder, state, {})
            return state
        with tempfile.TemporaryDirectory(prefix=f".{card.name}.", dir=raw_dir) as staging:
            sources = _sources(card, folder, downloads)
            try:
                state, staged = _gather(dataset, Path(staging), sources, allow_unverified)
            except MissingDataError as error:
                raise MissingDataError(f"{error} | {cures(card, folder)}") from error
            for name in (*(file.name for file in card.files), PARTIAL):
                if (Path(staging) / name).is_file():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(Path(staging) / name, folder / name)
        _record(card, folder, state, staged)
        return state


@contextlib.contextmanager
def _lock(raw_dir: Path, name: str) -> Iterator[None]:
    """Hold the set's lock; the kernel frees it when the process dies."""
    raw_dir.mkdir(parents=True, exist_ok=True)
    with (raw_dir / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _downloads(folder: Path) -> Iterator[Path]:
    """A folder of downloads, of which only halves stay: they wait to be continued."""
    place = folder.with_name(f".{folder.name}.downloads")
    place.mkdir(parents=True, exist_ok=True)
    try:
        yield place
    finally:
        for path in place.iterdir():
            if not path.name.endswith((".part", ".part.json")):
                path.unlink()
        if not any(place.iterdir()):
            place.rmdir()


def _gather(
    dataset: Dataset,
    staging: Path,
    sources: Iterator[tuple[str, Source]],
    allow_unverified: bool,
) -> tuple[RawState, dict[str, Staged]]:
    """Stage files source by source until they pass; all reasons are raised when none does."""
    card = dataset.card
    reasons: list[str] = []
    refused = False
    staged: dict[str, Staged] = {}
    for title, source in sources:
        for file in card.files:
            if _is_good(staging / file.name, file.sha256, staged.get(file.name)):
                continue
            try:
                found = source(file.name, staging / file.name)
            except NotServedError as error:
                reasons.append(str(error))
                break
            except DataError as error:
                reasons.append(str(error))
                refused = True
                break
            if found is not None:
                staged[file.name] = found
        if missing_files(card, staging):
            continue
        try:
            return inspect_raw(
                dataset, staging, allow_unverified, _trusted(staging, staged)
            ), staged
        except DataError as error:
            refused = True
            # The staging folder goes away; name the source.
            reasons.append(f"{title}: {str(error).replace(f'{staging}/', '')}")
    why = " | ".join(dict.fromkeys(reasons)) or "no mirror, no address"
    if refused:
        raise DataError(f"{card.name}: {why}")
    raise MissingDataError(f"{card.name}: not found: {why}")


def _is_good(path: Path, accepted: tuple[str, ...], staged: Staged | None) -> bool:
    """Whether a staged file needs no other source."""
    return staged is not None and (staged.trusted or is_accepted(path, accepted))


def _trusted(folder: Path, staged: dict[str, Staged]) -> dict[str, str]:
    return {name: file_digest(folder / name) for name, found in staged.items() if found.trusted}


def _sources(card: Card, folder: Path, downloads: Path) -> Iterator[tuple[str, Source]]:
    """Yield (title, source) in the order in which they are tried."""
    if folder.is_dir():
        yield str(folder), _folder_source(card, folder, "put there by the user")
    place = mirror()
    if place.startswith(("http://", "https://")):
        yield place, _url_source(card, f"{place.rstrip('/')}/{card.name}", downloads)
    elif place:
        held = Path(place) / card.name
        yield str(held), _folder_source(card, held, "mirror")
    for address in card.addresses:
        yield address.url, _address_source(card, address, downloads)


def mirror() -> str:
    """Return the folder or address that PFRNN_DATA_MIRROR names; empty when there is none.

    Raises:
        ConfigError: it names neither a folder nor an http(s) address.
    """
    place = os.environ.get(MIRROR, "").strip()
    if not place or place.startswith(("http://", "https://")):
        return place
    folder = Path(place.removeprefix("file://")).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{MIRROR}={place}: expected a folder or an http(s) address")
    return str(folder)


def find_in_folder(card: Card, folder: Path, name: str) -> tuple[Path, str] | None:
    """Find a raw file: plain, in a zip of the publisher's, or in an unzipped folder below.

    Returns:
        (path, member of the archive or ""); None when it isn't there.
    """
    if (folder / name).is_file():
        return folder / name, ""
    for archive, member in zip_candidates(card, name):
        if (folder / archive).is_file():
            return folder / archive, member
    unzipped = sorted(folder.glob(f"*/{name}"))
    return (unzipped[0], "") if unzipped else None


def zip_candidates(card: Card, name: str) -> Iterator[tuple[str, str]]:
    """Yield (zip's name, member) of the publisher's zips that hold a raw file."""
    yield f"{PurePosixPath(name).stem}.zip", name
    for address in card.addresses:
        if name in address.members:
            base = PurePosixPath(unquote(urlsplit(address.url).path)).name
            for archive in dict.fromkeys((base, base.replace("+", " "), f"{card.name}.zip")):
                yield archive, address.members[name] or name


def _folder_source(card: Card, folder: Path, origin: str) -> Source:
    def get(name: str, target: Path) -> Staged | None:
        found = find_in_folder(card, folder, name)
        if found is None:
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        path, member = found
        if member:
            extract_member(path, member, target)
        else:
            shutil.copyfile(path, target)
        if (folder / PARTIAL).is_file():
            shutil.copyfile(folder / PARTIAL, _beside(target, name) / PARTIAL)
        return Staged(origin)

    return get


def _beside(target: Path, name: str) -> Path:
    """The staging folder of a raw file that is to be staged at ``target``."""
    return target.parents[len(PurePosixPath(name).parts) - 1]


def _url_source(card: Card, base: str, downloads: Path) -> Source:
    def get(name: str, target: Path) -> Staged | None:
        staging = _beside(target, name)
        if not (staging / PARTIAL).is_file():
            _download_if_there(f"{base}/{PARTIAL}", staging / PARTIAL)
        target.parent.mkdir(parents=True, exist_ok=True)
        if _download_if_there(f"{base}/{quote(name)}", target):
            return Staged("mirror")
        for archive, member in zip_candidates(card, name):
            held = _cached(f"{base}/{quote(archive)}", downloads)
            if held is not None:
                extract_member(held, member, target)
                return Staged("mirror")
        return None

    return get


def _address_source(card: Card, address: Address, downloads: Path) -> Source:
    members = dict(address.members)
    if not members:
        base = PurePosixPath(unquote(urlsplit(address.url).path)).name
        names = [file.name for file in card.files]
        members = {base if base in names else names[0]: ""}

    def get(name: str, target: Path) -> Staged | None:
        if name not in members:
            return None
        held = downloads / _safe_name(address.url)
        if not held.is_file():
            download(address.url, held)
        target.parent.mkdir(parents=True, exist_ok=True)
        if members[name]:
            extract_member(held, members[name], target)
        else:
            shutil.copyfile(held, target)
        return Staged(address.url, is_accepted(held, address.digests))

    return get


def _download_if_there(url: str, target: Path) -> bool:
    try:
        download(url, target)
    except NotServedError as error:
        if error.absent:
            return False
        raise
    return True


def _cached(url: str, downloads: Path) -> Path | None:
    held = downloads / _safe_name(url)
    return held if held.is_file() or _download_if_there(url, held) else None


def _safe_name(url: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in url)[-120:]


def _record(card: Card, folder: Path, state: RawState, staged: dict[str, Staged]) -> None:
    """Write fetch.json, what the files are; and beside it, hidden, who vouches for them."""
    old = read_record(folder, MEMORY)
    origins = old.get("origin", {}) | {name: found.origin for name, found in staged.items()}
    memory: dict[str, Any] = {
        "origin": {name: origins.get(name, "put there by the user") for name in state.sha256},
        "trusted": old.get("trusted", {}) | _trusted(folder, staged),
        "unverified": state.sha256 if state.state == "unverified" else {},
    }
    record = {
        "dataset": card.name, "state": state.state, "note": state.note, "sha256": state.sha256,
    }  # fmt: skip
    for name, value in ((MEMORY, memory), (RECORD, record)):
        if read_record(folder, name) != value:
            write_json(folder / name, value)
