"""Fetching a data set's raw files: the mirror first, then the publisher's addresses in order.

Files gather in a hidden staging folder, are verified there, and only then move to
``data/raw/<set>/``, each by one rename; ``fetch.json`` is written last. One lock file a set keeps
processes apart. So no reader ever sees half a file, whatever was interrupted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pfrnn.errors import DataError, MissingDataError
from pfrnn.study.data.archives import extract_member
from pfrnn.study.data.base import Address, Card, Dataset
from pfrnn.study.data.digests import file_digests, is_accepted
from pfrnn.study.data.download import NotServedError, Policy, download
from pfrnn.study.data.mirror import Mirror, open_mirror
from pfrnn.study.data.rawstate import (
    MEMORY,
    PARTIAL,
    RECORD,
    RawState,
    cures,
    inspect_raw,
    missing_files,
    read_record,
)
from pfrnn.study.data.wheel import SCHEME, download_wheel
from pfrnn.study.files import read_json, write_json


class Source(NamedTuple):
    """Where a staged file came from.

    Attributes:
        origin: in words: ``mirror`` or the publisher's address.
        place: the file's path or address, for messages.
        trusted: True when the archive around it has a known digest.
    """

    origin: str
    place: str
    trusted: bool


def fetch(
    dataset: Dataset,
    raw_dir: Path,
    allow_unverified: bool = False,
    policy: Policy = Policy(),  # noqa: B008
) -> RawState:
    """Bring a data set's raw files to ``raw_dir/<set>/`` and verify them.

    Files that are there already are verified and kept; nothing is asked of the network then.

    Args:
        dataset: the data set.
        raw_dir: parent of the raw folders.
        allow_unverified: accept files that no digest knows; their state says so ever after.
        policy: retries and time-outs.

    Raises:
        MissingDataError: neither the mirror nor any address gave the files; says why, and the
            two ways to add them.
        DataError: what was found is damaged or not the publisher's.
    """
    card = dataset.card
    folder = raw_dir / card.name
    if not card.files:
        return inspect_raw(dataset, folder)
    with _lock(raw_dir, card.name):
        if not missing_files(card, folder):
            state = inspect_raw(dataset, folder, allow_unverified)
            _record(dataset, folder, state, {})
            return state
        staging = raw_dir / f".{card.name}.staging"
        _clear(staging)
        staging.mkdir(parents=True, exist_ok=True)
        try:
            state, sources = _gather(dataset, staging, folder, allow_unverified, policy)
            _move(card, staging, folder)
            _record(dataset, folder, state, sources)
            return state
        finally:
            _clear(staging)


@contextlib.contextmanager
def _lock(raw_dir: Path, name: str) -> Iterator[None]:
    """Hold the set's lock; the kernel frees it when the process dies."""
    raw_dir.mkdir(parents=True, exist_ok=True)
    with (raw_dir / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _gather(
    dataset: Dataset, staging: Path, folder: Path, allow_unverified: bool, policy: Policy
) -> tuple[RawState, dict[str, Source]]:
    """Stage files source by source until they pass; the last refusal or every reason is raised."""
    card = dataset.card
    reasons: list[str] = []
    refusal: DataError | None = None
    sources: dict[str, Source] = {}
    for supply in _suppliers(card, policy):
        try:
            sources |= supply(staging, _good(card, staging, sources))
        except NotServedError as error:
            reasons.append(str(error))
        except MissingDataError:
            raise
        except DataError as error:
            if "disk is full" in str(error):
                raise
            refusal = error
            reasons.append(str(error))
        if missing_files(card, staging):
            continue
        try:
            trusted = _trusted(staging, sources)
            places = {name: source.place for name, source in sources.items()}
            return inspect_raw(dataset, staging, allow_unverified, trusted, places), sources
        except DataError as error:
            refusal = error
            reasons.append(str(error))
    # One line each: what a job's log ends with is what the user is shown.
    if refusal is not None:
        others = [reason for reason in reasons if reason != str(refusal)]
        raise DataError(" | ".join([str(refusal), *others]))
    why = " | ".join(reasons) or "it has no address"
    raise MissingDataError(f"{card.name}: can't be had here: {why} | {cures(card, folder)}")


class _MirrorSupply:
    """Copies whatever the mirror holds of the set."""

    def __init__(self, card: Card, mirror: Mirror) -> None:
        self._card, self._mirror = card, mirror

    def __call__(self, staging: Path, good: set[str]) -> dict[str, Source]:
        found = {}
        for file in self._card.files:
            if file.name in good:
                continue
            (staging / file.name).unlink(missing_ok=True)
            place = self._mirror.get(self._card, file.name, staging / file.name)
            if place:
                found[file.name] = Source("mirror", place, trusted=False)
            elif not file.optional:
                raise NotServedError(f"mirror: has no {self._card.name}/{file.name}")
        self._mirror.get_plain(self._card, PARTIAL, staging / PARTIAL)
        return found


class _AddressSupply:
    """Downloads one of the publisher's addresses and takes the set's files out of it."""

    def __init__(self, card: Card, address: Address, policy: Policy) -> None:
        self._card, self._address, self._policy = card, address, policy

    def __call__(self, staging: Path, good: set[str]) -> dict[str, Source]:
        address = self._address
        wanted = {n: m for n, m in members_of(self._card, address).items() if n not in good}
        if not wanted:
            return {}
        download_to = staging / ".downloads" / _safe_name(address.url)
        download_to.parent.mkdir(parents=True, exist_ok=True)
        if address.url.startswith(SCHEME):
            download_wheel(address.url, download_to)
        else:
            download(address.url, download_to, self._policy)
        try:
            trusted = is_accepted(download_to, address.digests)
            for name, member in wanted.items():
                if member:
                    extract_member(download_to, member, staging / name, address.url)
                else:
                    (staging / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(download_to, staging / name)
        finally:
            download_to.unlink()
        return {
            name: Source(address.url, f"{address.url}!{member}" if member else address.url, trusted)
            for name, member in wanted.items()
        }


def _clear(staging: Path) -> None:
    """Remove what was staged, and the folder; half downloads stay, to be resumed."""
    for path in staging.rglob("*"):
        if path.is_file() and not path.name.endswith((".part", ".part.json")):
            path.unlink()
    if not any(path.is_file() for path in staging.rglob("*")):
        shutil.rmtree(staging, ignore_errors=True)


def _suppliers(card: Card, policy: Policy) -> Iterator[_MirrorSupply | _AddressSupply]:
    mirror = open_mirror(policy)
    if mirror is not None:
        yield _MirrorSupply(card, mirror)
    for address in card.addresses:
        yield _AddressSupply(card, address, policy)


def members_of(card: Card, address: Address) -> dict[str, str]:
    """Raw file name -> path inside the archive, "" where the URL is the file itself."""
    if address.members:
        return dict(address.members)
    base = unquote(urlsplit(address.url).path).rpartition("/")[2]
    names = [file.name for file in card.files]
    return {base if base in names else names[0]: ""}


def _good(card: Card, staging: Path, sources: dict[str, Source]) -> set[str]:
    """Names of staged files that need no other source."""
    return {
        file.name
        for file in card.files
        if file.name in sources
        and (staging / file.name).is_file()
        and (sources[file.name].trusted or is_accepted(staging / file.name, file.sha256))
    }


def _trusted(staging: Path, sources: dict[str, Source]) -> dict[str, str]:
    return {
        name: file_digests(staging / name)["sha256"]
        for name, source in sources.items()
        if source.trusted and (staging / name).is_file()
    }


def _safe_name(url: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in url)[-120:]


def _move(card: Card, staging: Path, folder: Path) -> None:
    for name in [*(file.name for file in card.files), PARTIAL]:
        if (staging / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / name, folder / name)


def _record(dataset: Dataset, folder: Path, state: RawState, sources: dict[str, Source]) -> None:
    """Write fetch.json, what the files are; and beside it, hidden, where they are from, in words.

    Jobs depend on fetch.json by content: the same files from another place must not change it.
    """
    old = read_record(folder)
    origins = old.get("origin", {}) | {name: source.origin for name, source in sources.items()}
    # Only where nothing but the archive vouches for a file.
    known = {file.name: file.sha256 for file in dataset.card.files}
    trusted = old.get("trusted", {}) | {
        name: state.sha256[name]
        for name, source in sources.items()
        if source.trusted and not is_accepted(folder / name, known[name])
    }
    record = {
        "dataset": dataset.card.name,
        "state": state.state,
        "note": state.note,
        "sha256": state.sha256,
        "trusted": trusted,
        "unverified": state.sha256 if state.state == "unverified" else {},
    }
    named = {name: origins.get(name, "put there by the user") for name in state.sha256}
    for name, value in ((MEMORY, record | {"origin": named}), (RECORD, record)):
        if _read_or_none(folder / name) != value:
            write_json(folder / name, value)


def _read_or_none(path: Path) -> object:
    try:
        return read_json(path)
    except (FileNotFoundError, ValueError):
        return None
