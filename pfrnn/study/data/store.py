"""Prepared arrays on disk: ``arrays.npz`` and ``card.json``; equal content gives equal bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from pfrnn.errors import DataError
from pfrnn.study.data.base import SPLITS, Prepared, PreparedCard, Split
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.files import atomic_path, read_json, write_json

ARRAYS = "arrays.npz"
CARD = "card.json"
# The earliest time a zip can hold: a real one would make every file different.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)


def named_arrays(
    splits: Mapping[str, Split], extra: Mapping[str, npt.NDArray[Any]]
) -> dict[str, npt.NDArray[Any]]:
    """Give every array its name in the file: ``train/x``, ``extra/map``."""
    named = {
        f"{name}/{field}": getattr(split, field)
        for name, split in splits.items()
        for field in Split._fields
    }
    return named | {f"extra/{name}": np.asarray(values) for name, values in extra.items()}


def save_prepared(prepared: Prepared, folder: Path) -> None:
    """Write arrays, then the card: a folder with a card is complete."""
    (folder / CARD).unlink(missing_ok=True)
    arrays = named_arrays(prepared.splits, prepared.extra)
    with atomic_path(folder / ARRAYS) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in sorted(arrays):
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(arrays[name]), version=(1, 0))
            # Stored, not deflated: deflate's bytes differ between zlib versions.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", TIMESTAMP), buffer.getbuffer())
    write_json(folder / CARD, prepared.card.model_dump(mode="json"))


def load_card(folder: Path) -> PreparedCard:
    """Read the card of prepared arrays.

    Raises:
        DataError: there is none, or another version of the package wrote it.
    """
    path = folder / CARD
    try:
        return PreparedCard.model_validate(read_json(path))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no prepared data here; run `pfrnn prepare`") from error
    except (ValueError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise DataError(f"{path}: damaged or of another version ({why}); prepare again") from error


def check_planned(card: PreparedCard, planned: Path) -> None:
    """Refuse prepared data of another set or protocol than the folder is named after.

    Args:
        card: what lies there.
        planned: the folder, as the plan names it: NAME-PROTOCOL.

    Raises:
        DataError: they were put there by hand.
    """
    found = f"{card.name}-{card.protocol_digest}"
    if found != planned.name:
        raise DataError(
            f"{planned}: holds {found}; move it to a folder of that name, and run `pfrnn prepare` "
            "for what the plan asks for"
        )


def load_prepared(folder: Path | str) -> Prepared:
    """Load prepared arrays and check that they are those that the card describes.

    Raises:
        DataError: a file is missing or damaged, or the arrays' digest is not the card's.
    """
    folder = Path(folder)
    card = load_card(folder)
    try:
        with np.load(folder / ARRAYS, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise DataError(f"{folder / ARRAYS}: missing; run `pfrnn prepare {card.name}`") from error
    except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
        raise DataError(f"{folder / ARRAYS}: damaged ({error}); prepare it again") from error
    found = arrays_digest(arrays)
    if found != card.arrays_digest:
        raise DataError(
            f"{folder / ARRAYS}: content has digest {found}, its card says {card.arrays_digest}; "
            f"run `pfrnn prepare {card.name}` again"
        )
    splits = {
        name: Split(*(arrays[f"{name}/{field}"] for field in Split._fields)) for name in SPLITS
    }
    extra = {
        name.removeprefix("extra/"): values
        for name, values in arrays.items()
        if name.startswith("extra/")
    }
    return Prepared(card, splits, extra)
