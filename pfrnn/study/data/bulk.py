"""Strict reading of large tables: a fast parse, and only then a slow look for the fault.

``tables`` reads cell by cell; a million rows need a parser in C. What it refuses is
then looked for line by line, so that the message can name the place.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.rawbytes import read_bytes

LINE_END = b"\n"
BLANK_LINE = re.compile(rb"^[ \t\r]+\n", re.MULTILINE)
# Longer cells are cut; no name in these tables has more than 38 letters.
MAX_TEXT = 48


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
    raw = read_bytes(path)
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
        Column name -> float64 (correctly rounded) or text, rows in the file's order.

    Raises:
        DataError: naming the file, line, what was expected and what came.
    """
    raw = read_raw(path)
    body = raw
    if layout.header:
        _check_header(path, raw, layout)
        body = raw.lstrip().partition(LINE_END)[2]
    if not body.strip():
        raise DataError(f"{path}: line 2: expected rows below the header, got none; fetch it again")
    if layout.separator is not None:
        # NumPy skips empty lines, but takes a line of blanks for a cell where commas separate.
        body = BLANK_LINE.sub(b"", body)
    kinds = {"number": "f8", "text": f"U{MAX_TEXT}"}
    record = np.dtype([(name, kinds[kind]) for name, kind in layout.columns.items()])
    try:
        rows = np.loadtxt(
            io.BytesIO(body),
            dtype=record,
            comments=None,
            delimiter=layout.separator,
            encoding="ascii",
            ndmin=1,
        )
    except ValueError as error:
        raise _explain(path, raw, layout, str(error)) from error
    table: dict[str, npt.NDArray[Any]] = {}
    for name, kind in layout.columns.items():
        if kind == "number":
            table[name] = rows[name].copy()
            faulty = not np.isfinite(table[name]).all()
        else:
            table[name] = np.char.strip(rows[name])
            faulty = bool((table[name] == "").any())
        if faulty:
            raise _explain(path, raw, layout, f"column {name}: NaN, infinity or an empty cell")
    return table


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
                # float() also takes 1_000, which no publisher means as a number.
                good = math.isfinite(float(text)) and "_" not in text
            except ValueError:
                good = False
            if not good:
                return f", column {column} ({name}): expected a number, got {text[:40]!r}"
        elif not text:
            return f", column {column} ({name}): expected text, got nothing"
    return ""
