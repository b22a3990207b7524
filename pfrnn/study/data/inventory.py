"""What is there of each data set: state, rows, sequences, size on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from pfrnn.errors import DataError
from pfrnn.study.data.availability import Availability, availability
from pfrnn.study.data.base import Dataset, PreparedCard
from pfrnn.study.data.rawstate import inspect_raw
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.remote import fetch
from pfrnn.study.data.store import load_card


class Entry(NamedTuple):
    """One line of ``pfrnn datasets``.

    Attributes:
        name: as in params.yaml.
        title: for people.
        task: regression, classification or localization.
        state: whole, excerpt, unverified, simulated, missing or refused.
        reason: why it is in that state.
        where: simulated, disk, mirror, address or missing.
        rows: source rows here; None where nothing was read.
        rows_whole: source rows of the whole set.
        sequences: split -> sequences, when prepared.
        classes: class names, when prepared.
        target: what is predicted.
        unit: its unit.
        digest: of the prepared arrays, when prepared.
        raw_bytes: size of the raw files on disk.
        prepared_bytes: size of the prepared files on disk.
        licence: of the raw data, as known.
        redistributable: whether it allows passing the data on.
    """

    name: str
    title: str
    task: str
    state: str
    reason: str
    where: str
    rows: int | None
    rows_whole: int | None
    sequences: dict[str, int] | None
    classes: tuple[str, ...] | None
    target: str
    unit: str
    digest: str | None
    raw_bytes: int
    prepared_bytes: int
    licence: str
    redistributable: bool


def entry(name: str, raw_dir: Path, prepared: Path | None = None) -> Entry:
    """Look at one data set; a set that only the mirror has is read from there.

    Args:
        name: a registered data set.
        raw_dir: parent of the raw folders.
        prepared: folder of its prepared arrays; None or a folder that isn't there: not prepared.
    """
    found = dataset(name)
    card = found.card
    state, reason, where, rows = _raw(found, raw_dir, availability(name, raw_dir))
    ready = _prepared_card(prepared)
    return Entry(
        name=name,
        title=card.title,
        task=card.task,
        state=state,
        reason=reason,
        where=where,
        rows=rows,
        rows_whole=card.rows,
        sequences=ready.sequences if ready else None,
        classes=ready.classes if ready and card.task == "classification" else None,
        target=card.target,
        unit=card.unit,
        digest=ready.arrays_digest if ready else None,
        raw_bytes=_size(raw_dir / name),
        prepared_bytes=_size(prepared) if prepared else 0,
        licence=card.licence,
        redistributable=card.redistributable,
    )


def _raw(found: Dataset, raw_dir: Path, at: Availability) -> tuple[str, str, str, int | None]:
    """Return state, reason, where and rows."""
    name = found.card.name
    if at.where == "simulated":
        return "simulated", at.reason, at.where, None
    if at.where == "missing":
        return "missing", at.reason, at.where, None
    if at.where == "address":
        return "missing", f"not fetched yet ({at.reason}); run `pfrnn fetch {name}`", at.where, None
    try:
        if at.where == "disk":
            state = inspect_raw(found, raw_dir / name)
            return state.state, state.note or at.reason, at.where, _rows(found, raw_dir / name)
        with tempfile.TemporaryDirectory() as folder:
            state = fetch(found, Path(folder))
            rows = _rows(found, Path(folder) / name)
            return state.state, state.note or at.reason, at.where, rows
    except DataError as error:
        return "refused", str(error), at.where, None


def _rows(found: Dataset, folder: Path) -> int | None:
    if found.read is None:
        return None
    return max(len(column) for column in found.read(folder).values())


def _prepared_card(folder: Path | None) -> PreparedCard | None:
    if folder is None:
        return None
    try:
        return load_card(folder)
    except DataError:
        return None


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
