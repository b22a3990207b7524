"""Reading publishers' text tables strictly: every fault is named with its line and column.

A lenient reader turns a decimal comma into a column of text, a missing cell into NaN and an HTML
error page into one strange row. Here anything unexpected is an error that says how to cure it;
only line ends, blank lines and a byte-order mark make no difference.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.rawbytes import BYTE_ORDER_MARK, read_bytes

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", " ": "spaces"}


class TextTable(NamedTuple):
    """Cells of a table, still text.

    Attributes:
        path: the file, for messages.
        columns: column name -> its cells, stripped of spaces and quotes.
        lines: line number of each row in the file, from 1.
    """

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]


def read_lines(path: Path, encoding: str = "ascii") -> list[str]:
    r"""Read a text file's lines, split at \n only, without line ends.

    Raises:
        DataError: missing, empty, an HTML page, or not text in the encoding.
    """
    content = read_bytes(path).removeprefix(BYTE_ORDER_MARK)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise DataError(
            f"{path}: line {line}: expected {encoding} text, got byte 0x{byte:02x}; "
            "the file was saved in another encoding: get the publisher's"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            f"{path}: line {line}: expected {encoding} text, got a NUL byte; the file was saved in "
            "another encoding: get the publisher's"
        )
    return [line.removesuffix("\r") for line in text.split("\n")]


def read_table(path: Path, header: Sequence[str], separator: str) -> TextTable:
    """Read a table whose header is known.

    Args:
        path: the file.
        header: the column names that the publisher's file has, in order; "" for a column
            without a name, which is left out.
        separator: one character between cells.

    Raises:
        DataError: the header is another, or a row has too few or too many cells.
    """
    lines = read_lines(path)
    split = [[cell.strip().strip('"').strip() for cell in line.split(separator)] for line in lines]
    filled = [i for i, cells in enumerate(split) if any(cells)]
    _check_header(path, lines, split, filled, list(header), separator)
    rows, numbers = [], []
    for i in filled[1:]:
        if len(split[i]) != len(header):
            cut = "; the file ends in the middle of a line" if i == filled[-1] else ""
            raise DataError(
                f"{path}: line {i + 1}: expected {len(header)} cells, got {len(split[i])}{cut}; "
                "get the publisher's file"
            )
        rows.append(split[i])
        numbers.append(i + 1)
    if not rows:
        raise DataError(f"{path}: expected rows below the header, got none; fetch it again")
    columns = dict(zip(header, (list(column) for column in zip(*rows, strict=True)), strict=False))
    columns.pop("", None)
    return TextTable(path, columns, numbers)


def _check_header(
    path: Path,
    lines: list[str],
    split: list[list[str]],
    filled: list[int],
    header: list[str],
    separator: str,
) -> None:
    got = split[filled[0]]
    if got == header:
        return
    where = f"{path}: line {filled[0] + 1}"
    for i in filled[1:6]:
        if split[i] == header:
            raise DataError(
                f"{where}: expected the header, got {lines[filled[0]][:60]!r}; the header stands "
                f"in line {i + 1}: delete the lines above it, or get the publisher's file"
            )
    for other, name in SEPARATORS.items():
        cells = [cell.strip().strip('"').strip() for cell in lines[filled[0]].split(other)]
        if other != separator and len(cells) > len(got) and set(header) & set(cells) - {""}:
            raise DataError(
                f"{where}: expected columns separated by {SEPARATORS[separator]}, got {name}; "
                "this is an altered copy: get the publisher's file"
            )
    missing = [name for name in header if name not in got]
    extra = [name for name in got if name not in header]
    parts = [f"column {', '.join(map(repr, missing))} is missing"] if missing else []
    parts += [f"column {', '.join(map(repr, extra))} is not known"] if extra else []
    parts = parts or [f"expected {len(header)} columns in the order {','.join(header)}"]
    raise DataError(f"{where}: header: {'; '.join(parts)}; get the publisher's file")


def to_numbers(
    table: TextTable, column: str, decimal: str = ".", missing: Collection[str] = ()
) -> npt.NDArray[np.float64]:
    """Read a column as numbers; a missing code becomes NaN, any other text is an error.

    Args:
        table: the table.
        column: its column's name.
        decimal: the decimal sign, "." or ",".
        missing: the publisher's codes for a missing value, as text.

    Raises:
        DataError: a cell is not a finite number, with its line and column.
    """
    values = np.empty(len(table.lines))
    for i, cell in enumerate(table.columns[column]):
        values[i] = math.nan if cell in missing else _number(table, column, i, cell, decimal)
    return values


def _number(table: TextTable, column: str, row: int, cell: str, decimal: str) -> float:
    where = f"{table.path}: line {table.lines[row]}, column {column!r}"
    other = "." if decimal == "," else ","
    if other in cell:
        names = {".": "a decimal point", ",": "a decimal comma"}
        raise DataError(
            f"{where}: expected {names[decimal]}, got {cell!r}; this is an altered copy: get the "
            "publisher's file"
        )
    try:
        value = float(cell.replace(decimal, "."))
    except ValueError:
        value = math.nan
    # float() also takes "nan", "inf" and "1_000", which no publisher means as a number.
    if not math.isfinite(value) or "_" in cell:
        shown = repr(cell) if cell else "an empty cell"
        raise DataError(f"{where}: expected a number, got {shown}; get the publisher's file")
    return value


def times_of(table: TextTable, column: str, pattern: str) -> npt.NDArray[np.int64]:
    """Read a column of times into seconds since 1970-01-01, without any time zone.

    Args:
        table: the table.
        column: its column's name.
        pattern: as for ``datetime.strptime``.

    Raises:
        DataError: a cell is not a time of this pattern, with its line and column.
    """
    seconds = np.empty(len(table.lines), dtype=np.int64)
    for i, cell in enumerate(table.columns[column]):
        try:
            moment = dt.datetime.strptime(f"{cell} +0000", f"{pattern} %z")
        except ValueError as error:
            raise DataError(
                f"{table.path}: line {table.lines[i]}, column {column!r}: expected a time like "
                f"{pattern}, got {cell!r}; get the publisher's file"
            ) from error
        seconds[i] = int(moment.timestamp())
    return seconds


def check_steps(table: TextTable, times: npt.NDArray[np.int64], step: int, unit: str) -> None:
    """Check that rows follow each other at equal steps of time.

    Args:
        table: the table, for messages.
        times: one a row, in ``unit``.
        step: the expected difference.
        unit: for messages.

    Raises:
        DataError: naming the first row that is out of order, doubled, or after a gap.
    """
    difference = np.diff(times)
    wrong = np.flatnonzero(difference != step)
    if not len(wrong):
        return
    line = table.lines[int(wrong[0]) + 1]
    got = int(difference[wrong[0]])
    fault = "rows are out of order" if got <= 0 else "rows are missing"
    raise DataError(
        f"{table.path}: line {line}: expected {step} {unit} after the row before, got {got}: "
        f"{fault}; get the publisher's file"
    )
