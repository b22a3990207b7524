"""What lies in a data set's raw folder: whole, excerpt or unverified; anything else is an error.

A file is the publisher's when its bytes have a known digest, when an archive with a known digest
held it, or when the table parsed from all files has a known digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pfrnn.errors import DataError, MissingDataError
from pfrnn.study.data.base import Card, Dataset, State
from pfrnn.study.data.digests import arrays_digest, file_digest, is_accepted
from pfrnn.study.data.raw import HEAD, is_web_page
from pfrnn.study.files import read_json

# What the files are. Jobs depend on it by content, so it says nothing of where they came from.
RECORD = "fetch.json"
# Where they came from, and what an archive or the user vouched for. It survives a workflow
# engine, which removes a job's outputs before it runs the job again.
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
) -> RawState:
    """Check the raw files of a data set by content and say what they are.

    Args:
        dataset: the data set.
        folder: ``data/raw/<set>``.
        allow_unverified: accept readable files that nothing vouches for; their state says so.
        trusted: file name -> sha256 of files out of an archive with a known digest; default:
            what the folder remembers.

    Raises:
        MissingDataError: a raw file is not there.
        DataError: a file cannot be read, or is not the publisher's and nobody allowed it.
    """
    card = dataset.card
    if not card.files:
        return RawState("simulated", "", {})
    _require_files(card, folder)
    memory = read_record(folder, MEMORY)
    trusted = memory.get("trusted", {}) if trusted is None else trusted
    present = [file for file in card.files if (folder / file.name).is_file()]
    sha256 = {file.name: file_digest(folder / file.name) for file in present}
    unknown = [
        file.name
        for file in present
        if trusted.get(file.name) != sha256[file.name]
        and not is_accepted(folder / file.name, file.sha256)
    ]
    if not unknown:
        return RawState("whole", "", sha256)
    table = _table_digest(dataset, folder)
    if table in card.tables:
        differ = [file.name for file in present if file.name in unknown and file.sha256]
        note = f"The bytes of {', '.join(differ)} differ from the publisher's, the table does not."
        return RawState("whole", note if differ else "", sha256)
    excerpt = _excerpt_note(folder)
    if table in card.excerpts or (excerpt and not card.excerpts):
        return RawState("excerpt", excerpt or "Excerpt of the publisher's file.", sha256)
    if not _is_known(card):
        return RawState("unverified", "The data set names no digest to compare with.", sha256)
    allowed = memory.get("unverified", {})
    if allow_unverified or all(allowed.get(name) == sha256[name] for name in unknown):
        note = f"Used on the user's word, not known to be the publisher's: {', '.join(unknown)}."
        return RawState("unverified", note, sha256)
    raise DataError(_refusal(card, folder, unknown, sha256, table))


def missing_files(card: Card, folder: Path) -> list[str]:
    """Names of the raw files that are not in the folder (optional ones don't count)."""
    needed = [file.name for file in card.files if not file.optional]
    return [name for name in needed if not (folder / name).is_file()]


def read_record(folder: Path, name: str = RECORD) -> dict[str, Any]:
    """Read what ``pfrnn fetch`` left in the folder; empty when there is nothing."""
    try:
        return dict(read_json(folder / name))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(f"{folder / name}: not JSON ({error}); delete it") from error


def check_recorded(card: Card, folder: Path, sha256: Mapping[str, str]) -> None:
    """Raise if raw files are not those that ``pfrnn fetch`` recorded, good as they may be.

    Jobs depend on the record; without one everything passes.
    """
    recorded = read_record(folder).get("sha256", sha256)
    for name, found in sha256.items():
        if recorded.get(name) != found:
            raise DataError(
                f"{folder / name}: changed since it was fetched: sha256 {found}, "
                f"{folder / RECORD} has {recorded.get(name)}; to use it as it is, run `pfrnn fetch "
                f"{card.name}`, which checks and records it; or delete it and fetch it again"
            )


def check_untouched(card: Card, folder: Path) -> None:
    """Do :func:`check_recorded` for files newer than the record; quick, for each start of a run.

    ``pfrnn prepare`` compares them all. Without a record nothing is fetched yet.
    """
    record = folder / RECORD
    fetched = record.stat().st_mtime_ns if record.is_file() else 0
    paths = {file.name: folder / file.name for file in card.files}
    newer = [n for n, p in paths.items() if p.is_file() and p.stat().st_mtime_ns > fetched > 0]
    check_recorded(card, folder, {name: file_digest(paths[name]) for name in newer})


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
        raise MissingDataError(
            f"{card.name}: {len(missing)} of {len(card.files)} raw files missing in {folder} "
            f"({listed}); run `pfrnn fetch {card.name}`, {cures(card, folder)}"
        )


def _table_digest(dataset: Dataset, folder: Path) -> str:
    """Digest of the parsed table; empty where the set has no parser.

    Raises:
        DataError: the files cannot be read.
    """
    return arrays_digest(dataset.read(folder)) if dataset.read else ""


def _excerpt_note(folder: Path) -> str:
    """The text of PARTIAL.md; empty when there is none, or a web page in its place."""
    path = folder / PARTIAL
    if not path.is_file() or is_web_page(path.read_bytes()[:HEAD]):
        return ""
    return " ".join(path.read_text(encoding="utf-8").split())


def _is_known(card: Card) -> bool:
    """Whether the card names any digest: a private data set of one's own need not."""
    digests = [*card.tables, *card.excerpts, *(d for file in card.files for d in file.sha256)]
    return bool(digests or any(address.digests for address in card.addresses))


def _refusal(
    card: Card, folder: Path, unknown: list[str], sha256: Mapping[str, str], table: str
) -> str:
    name = unknown[0]
    more = f" (and {len(unknown) - 1} more files)" if len(unknown) > 1 else ""
    return (
        f"{folder / name}{more}: not the publisher's file: sha256 {sha256[name]}; it can be read, "
        f"but its table's digest {table} is not known. Delete it, put the publisher's file there "
        f"and run `pfrnn fetch {card.name}`; or, if you know better, `pfrnn fetch {card.name} "
        f"--allow-unverified {card.name}` (its results are then marked unverified)"
    )
