"""Strict reading of large tables: a fast parse, and only then a slow look for the fault.

``pfrnn.data.tables`` reads cell by cell; a million rows need a parser in C. What it refuses, or
would let pass (a line too long, a NaN), is looked for line by line, so that messages are equal.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError

LINE_END = b"\n"


class Layout(NamedTuple):
    """How a publisher writes a table.

    Attributes:
        columns: column name -> ``"number"`` or ``"text"``, in the file's order.
        separator: ``","`` for commas, ``None`` for runs of white space.
        header: True when the first line holds the columns' names.
    """

    columns: Mapping[str, str]
    separator: str | None
    header: bool


def read_raw(path: Path) -> bytes:
    """Read a file's bytes; refuse what can't be a complete ASCII table.

    Raises:
        DataError: missing, empty, an HTML page, not ASCII, or cut (no line end at its end).
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; run `pfrnn fetch` for its data set") from error
    if not raw.strip():
        raise DataError(f"{path}: the file is empty; delete it and fetch it again")
    if raw[:512].lstrip().lower().startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        raise DataError(
            f"{path}: line 1: expected data, got an HTML page (a server's error page?); delete it "
            "and fetch it again"
        )
    if not raw.isascii() or b"\x00" in raw[:4096]:
        line, column = _first_odd_byte(raw)
        raise DataError(
            f"{path}: line {line}, column {column}: expected plain ASCII as published, got another "
            "encoding; fetch the file again"
        )
    if not raw.endswith(b"\n"):
        raise DataError(
            f"{path}: line {raw.count(LINE_END) + 1}: no line end at the end of the file; it "
            "was cut; delete it and fetch it again"
        )
    return raw


def _first_odd_byte(raw: bytes) -> tuple[int, int]:
    place = next(index for index, byte in enumerate(raw) if byte > 127 or byte == 0)
    return raw.count(b"\n", 0, place) + 1, place - raw.rfind(b"\n", 0, place)


def read_bulk(path: Path, layout: Layout) -> dict[str, npt.NDArray[Any]]:
    """Parse a table; blank lines and CRLF line ends are harmless, anything else is an error.

    Returns:
        Column name -> float64 or text, rows in the file's order.

    Raises:
        DataError: naming the file, line, what was expected and what came.
    """
    import pandas as pd

    raw = read_raw(path)
    if layout.header:
        _check_header(path, raw, layout)
    names = list(layout.columns)
    try:
        frame = pd.read_csv(
            io.BytesIO(raw), sep=layout.separator or r"\s+", header=None, names=names,
            index_col=False, skiprows=_lines_before_data(raw) if layout.header else 0,
            dtype={name: str if kind == "text" else "float64"
                   for name, kind in layout.columns.items()},
            na_filter=False, quoting=3, float_precision="round_trip", on_bad_lines="error",
        )  # fmt: skip
    except ValueError as error:
        raise _explain(path, raw, layout, str(error)) from error
    table: dict[str, npt.NDArray[Any]] = {}
    for name in names:
        table[name] = frame.pop(name).to_numpy()
        if layout.columns[name] == "number" and not np.isfinite(table[name]).all():
            raise _explain(path, raw, layout, f"column {name} holds NaN or infinity")
    last = names[-1]
    # A short line leaves its last cell empty; a long one, with pandas, loses its surplus.
    if layout.columns[last] == "text" and not all(table[last]):
        raise _explain(path, raw, layout, f"column {last} is empty somewhere")
    if _count_separators(raw, layout) != 0:
        raise _explain(path, raw, layout, "a line has too many or too few fields")
    return table


def _lines_before_data(raw: bytes) -> int:
    return raw[: len(raw) - len(raw.lstrip())].count(b"\n") + 1


def _count_separators(raw: bytes, layout: Layout) -> int:
    """Separators beyond one less than the columns a line; 0 for a table without faults."""
    if layout.separator is None:
        return 0
    lines = raw.count(b"\n")
    blank = sum(not line.strip() for line in raw.split(b"\n")[:-1]) if b"\n\n" in raw or (
        b"\n\r\n" in raw or raw[:1] in b"\r\n"
    ) else 0  # fmt: skip
    expected = (lines - blank) * (len(layout.columns) - 1)
    return raw.count(layout.separator.encode()) - expected


def _check_header(path: Path, raw: bytes, layout: Layout) -> None:
    first = raw.lstrip().split(b"\n", 1)[0].decode("ascii")
    found = [name.strip() for name in first.split(layout.separator)]
    if found != list(layout.columns):
        raise DataError(
            f"{path}: line 1: expected the header {' '.join(layout.columns)}, got "
            f"{first.strip()[:120]!r}; fetch the file again"
        )


def _explain(path: Path, raw: bytes, layout: Layout, reason: str) -> DataError:
    """Find the first faulty cell of a table that a fast parse refused."""
    names = list(layout.columns)
    skip = layout.header
    for number, line in enumerate(raw.decode("ascii").split("\n"), start=1):
        if not line.strip():
            continue
        if skip:
            skip = False
            continue
        fault = _line_fault(names, line.split(layout.separator), layout)
        if fault:
            return DataError(f"{path}: line {number}{fault}; the file is damaged, fetch it again")
    return DataError(f"{path}: {reason}; the file is damaged, fetch it again")


def _line_fault(names: Sequence[str], cells: Sequence[str], layout: Layout) -> str:
    if len(cells) != len(names):
        separator = "commas" if layout.separator == "," else "white space"
        return f": expected {len(names)} fields between {separator}, got {len(cells)}"
    for column, (name, cell) in enumerate(zip(names, cells, strict=True), start=1):
        text = cell.strip()
        if layout.columns[name] == "number":
            try:
                good = math.isfinite(float(text))
            except ValueError:
                good = False
            if not good:
                return f", column {column} ({name}): expected a number, got {text[:40]!r}"
        elif not text:
            return f", column {column} ({name}): expected text, got nothing"
    return ""
