"""Reading a finished job's records: refused when of other parameters or damaged."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pfrnn.errors import RecordError
from pfrnn.study.files import digest_of, read_mapping
from pfrnn.study.jobfolder import again


def check_record(folder: Path, expected: str) -> dict[str, Any]:
    """Read ``run.json`` and compare its parameters with the plan's.

    The digest is computed again from the parameters that the record holds: a record whose
    digest was copied, or whose parameters were edited, doesn't pass.

    Args:
        folder: the job's folder.
        expected: digest of the parameters that the plan asks for.

    Returns:
        The record.

    Raises:
        RecordError: there is none, it is damaged, or its parameters are others.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise RecordError(f"{path}: missing; this job has not finished")
    record = read_mapping(path, again(folder))
    parameters = entry_of(record, "parameters", folder)
    try:
        found = digest_of(parameters)
    except ValueError as error:
        raise RecordError(f"{path}: damaged parameters ({error}); {again(folder)}") from error
    if found != expected:
        raise RecordError(
            f"{path}: computed with parameters {found}, the configuration now asks for "
            f"{expected}; run the job again"
        )
    return record


def entry_of(record: Mapping[str, Any], name: str, folder: Path) -> Any:
    """Return an entry of the record in a job's folder.

    Raises:
        RecordError: the record lacks it.
    """
    if name not in record:
        raise RecordError(
            f"{folder / 'run.json'}: expected a finished job's record, got one without {name}; "
            f"{again(folder)}"
        )
    return record[name]


def read_rows(folder: Path, name: str, columns: Iterable[str]) -> list[dict[str, str]]:
    """Read a table of a finished job, whole.

    Args:
        folder: the job's folder.
        name: the table, as ``members.csv``.
        columns: that it must have.

    Returns:
        One mapping a line.

    Raises:
        RecordError: the table is missing or cut.
    """
    path = folder / name
    try:
        with path.open(encoding="utf-8", newline="") as source:
            text = source.read()
    except FileNotFoundError as error:
        raise RecordError(f"{path}: missing; {again(folder)}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 text ({error}); {again(folder)}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    lacking = [column for column in columns if column not in (reader.fieldnames or ())]
    if lacking:
        came = f"{', '.join(lacking)} missing" if text.strip() else "an empty file"
        raise RecordError(f"{path}: expected the columns of {name}, got {came}; {again(folder)}")
    rows = list(reader)
    for row in rows:
        # A short line leaves None in its columns, a long one has None for a key.
        if None in row or None in row.values():
            raise RecordError(
                f"{path}, line {rows.index(row) + 2}: expected {len(reader.fieldnames or ())} "
                f"fields, got others; the file is damaged; {again(folder)}"
            )
    if not text.endswith("\n"):
        raise RecordError(f"{path}: ends in the middle of a line; it was cut; {again(folder)}")
    return rows
