"""What lies in a data set's raw folder: whole, excerpt, unverified, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pfrnn.errors import DataError, MissingDataError
from pfrnn.study.data.base import Card, Dataset, State
from pfrnn.study.data.digests import arrays_digest, file_digests, is_accepted
from pfrnn.study.data.rawbytes import HEAD, is_web_page, web_page
from pfrnn.study.files import read_json

# What the files are. Jobs depend on it by content, so it says nothing of where they came from.
RECORD = "fetch.json"
# The same and where the files came from. It survives a workflow engine, which removes a job's
# outputs before it runs the job again: what the user allowed and what an archive vouched for must
# not be forgotten then.
MEMORY = ".fetch.json"
PARTIAL = "PARTIAL.md"


class RawState(NamedTuple):
    """The verdict on a raw folder.

    Attributes:
        state: whole, excerpt, unverified or simulated.
        note: the sentence that belongs to the state; empty for a whole set known by its bytes.
        sha256: digest of each raw file that is there.
    """

    state: State
    note: str
    sha256: dict[str, str]


def inspect_raw(
    dataset: Dataset,
    folder: Path,
    allow_unverified: bool = False,
    trusted: Mapping[str, str] | None = None,
    places: Mapping[str, str] | None = None,
) -> RawState:
    """Check the raw files of a data set by content and say what they are.

    Args:
        dataset: the data set.
        folder: ``data/raw/<set>``.
        allow_unverified: accept files that nothing vouches for, and say so in the state; not a
            web page or what the set's parser can't read.
        trusted: file name -> sha256 of files known to be the publisher's for another reason
            (out of an archive with a known digest); default: what the folder's record says.
        places: file name -> where it was had, for files that lie in ``folder`` for the moment
            only; messages then name these places.

    Raises:
        MissingDataError: a raw file is not there.
        DataError: a file is not the publisher's and nobody allowed it.
    """
    card = dataset.card
    if not card.files:
        return RawState("simulated", "", {})
    _require_files(card, folder)
    record = read_record(folder)
    trusted = trusted if trusted is not None else record.get("trusted", {})
    present = [file for file in card.files if (folder / file.name).is_file()]
    sha256 = {file.name: file_digests(folder / file.name)["sha256"] for file in present}
    unknown = [
        file.name
        for file in present
        if trusted.get(file.name) != sha256[file.name]
        and sha256[file.name] not in file.sha256
        and not is_accepted(folder / file.name, file.sha256)
    ]
    if not unknown:
        return RawState("whole", "", sha256)
    for name in unknown:
        _refuse_web_page(folder / name, folder, places)
    partial = folder / PARTIAL
    known = {file.name: file.excerpts for file in card.files}
    is_excerpt = all(not known[name] or sha256[name] in known[name] for name in unknown)
    if partial.is_file() and is_excerpt:
        note = " ".join(partial.read_text(encoding="utf-8").split())
        return RawState("excerpt", note, sha256)
    readable, reason = _compare_content(dataset, folder)
    if not reason:
        listed = ", ".join(unknown)
        note = f"The bytes of {listed} differ from the publisher's, the parsed table does not."
        return RawState("whole", note, sha256)
    allowed = record.get("unverified", {})
    vouched = allow_unverified or all(allowed.get(name) == sha256[name] for name in unknown)
    if vouched and readable:
        note = f"Used on the user's word, not known to be the publisher's: {', '.join(unknown)}."
        return RawState("unverified", note, sha256)
    if vouched:
        refusal = f"{card.name}: can't be used, not even unverified: {reason}"
    else:
        refusal = _refusal(card, folder, unknown, sha256, reason, bool(places))
    raise DataError(_named(refusal, folder, places))


def missing_files(card: Card, folder: Path) -> tuple[str, ...]:
    """Names of the raw files that are not in the folder (optional ones don't count)."""
    return tuple(
        file.name for file in card.files if not file.optional and not (folder / file.name).is_file()
    )


def read_record(folder: Path) -> dict[str, dict[str, str]]:
    """Read the record that ``pfrnn fetch`` left in the folder; empty when there is none."""
    for name in (MEMORY, RECORD):
        try:
            return dict(read_json(folder / name))
        except FileNotFoundError:
            continue
        except ValueError as error:
            raise DataError(f"{folder / name}: not JSON ({error}); delete it") from error
    return {}


def check_recorded(card: Card, folder: Path, sha256: Mapping[str, str]) -> None:
    """Refuse raw files that are not those that ``pfrnn fetch`` recorded, good as they may be.

    Jobs depend on the record; arrays of other files than it names would pass for its.

    Args:
        card: the data set's.
        folder: ``data/raw/<set>``; without a record everything passes.
        sha256: digest of each file to compare.

    Raises:
        DataError: a file has another digest, or none is recorded for it.
    """
    recorded = read_record(folder).get("sha256", {})
    if not recorded:
        return
    for name, found in sha256.items():
        if recorded.get(name) != found:
            expected = f"sha256 {recorded[name]}" if name in recorded else "no such file"
            raise DataError(
                f"{folder / name}: changed since it was fetched: sha256 {found}, expected "
                f"{expected} by {folder / RECORD}; to use it as it is, run `pfrnn fetch "
                f"{card.name}`, which judges and records it; else delete it first, and it is "
                "fetched again"
            )


def check_untouched(card: Card, folder: Path) -> None:
    """Refuse raw files that were changed after they were fetched; quick, for each start of a run.

    Only a file that is newer than the record is read: a change makes it so, and ``pfrnn prepare``
    compares them all. Without a record nothing is fetched yet, and everything passes.

    Raises:
        DataError: as :func:`check_recorded`.
    """
    record = folder / RECORD
    if not record.is_file():
        return
    fetched = record.stat().st_mtime_ns
    paths = {file.name: folder / file.name for file in card.files}
    newer = {
        name: path
        for name, path in paths.items()
        if path.is_file() and path.stat().st_mtime_ns > fetched
    }
    digests = {name: file_digests(path)["sha256"] for name, path in newer.items()}
    check_recorded(card, folder, digests)


def cures(card: Card, folder: Path) -> str:
    """Say the two ways to add a data set's files."""
    names = [file.name for file in card.files if not file.optional]
    listed = ", ".join(names[:3]) + (f", … ({len(names)} files)" if len(names) > 3 else "")
    return (
        f"either set PFRNN_DATA_MIRROR to a folder or base URL that holds {card.name}/, "
        f"or put the publisher's files ({listed}) into {folder}/"
    )


def _require_files(card: Card, folder: Path) -> None:
    missing = missing_files(card, folder)
    if missing:
        listed = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        total = sum(not file.optional for file in card.files)
        raise MissingDataError(
            f"{card.name}: {len(missing)} of {total} raw files missing in {folder} ({listed}); "
            f"run `pfrnn fetch {card.name}`, {cures(card, folder)}"
        )


def _compare_content(dataset: Dataset, folder: Path) -> tuple[bool, str]:
    """Return whether the files can be read, and why the table is no known one ("": it is)."""
    if dataset.read is None:
        return True, "the set has no parser that could decide"
    try:
        digest = arrays_digest(dataset.read(folder))
    except DataError as error:
        return False, f"reading it says: {error}"
    if digest in dataset.card.tables:
        return True, ""
    known = "its content is another" if dataset.card.tables else "no table digest is known"
    return True, f"it reads well, but {known} (table digest {digest})"


def _refuse_web_page(path: Path, folder: Path, places: Mapping[str, str] | None) -> None:
    """Refuse a server's error or log-in page under a raw file's name, whoever vouches for it."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if is_web_page(head):
        raise DataError(_named(str(web_page(path)), folder, places))


def _named(message: str, folder: Path, places: Mapping[str, str] | None) -> str:
    """Name files by where they were had, not by where they lie for the moment."""
    if not places:
        return message
    for name in sorted(places, key=len, reverse=True):
        message = message.replace(str(folder / name), places[name])
    return message.replace(str(folder), f"the fetched {', '.join(places)}")


def _refusal(
    card: Card,
    folder: Path,
    unknown: list[str],
    sha256: Mapping[str, str],
    reason: str,
    elsewhere: bool,
) -> str:
    name = unknown[0]
    cure = "Put the publisher's file there" if elsewhere else "Delete it"
    accepted = next(file.sha256 for file in card.files if file.name == name)
    expected = " or ".join(accepted) or "(none known)"
    more = f" (and {len(unknown) - 1} more files)" if len(unknown) > 1 else ""
    return (
        f"{folder / name}{more}: not the publisher's file: sha256 {sha256[name]}, expected "
        f"{expected}; {reason}. {cure} and run `pfrnn fetch {card.name}`; or, if you know "
        f"better, `pfrnn fetch {card.name} --allow-unverified {card.name}` (its results are "
        "then marked unverified)"
    )
