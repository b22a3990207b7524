"""Reading a finished job's run.json, and refusing one that belongs to other parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pfrnn.errors import RecordError
from pfrnn.files import digest_of, read_json


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
    try:
        record: dict[str, Any] = read_json(path)
        found = digest_of(record["parameters"])
    except FileNotFoundError as error:
        raise RecordError(f"{path}: missing; this job has not finished") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: damaged ({error}); remove the folder and run again") from error
    if found != expected:
        raise RecordError(
            f"{path}: computed with parameters {found}, the configuration now asks for "
            f"{expected}; run the job again"
        )
    return record
