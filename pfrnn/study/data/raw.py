"""Reading publishers' text files, leniently in form and strictly in content.

Line ends, a missing last line end, blank lines and a byte-order mark make no difference in any
set. A cell that is not what its column holds is an error that names the file, line and column.
Whether the content is the publisher's is decided by the digest of the parsed table (``state``).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError

Table = dict[str, npt.NDArray[Any]]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# This much of a file is looked at to recognise a web page.
HEAD = 512
_WEB_PAGE = (b"<!doctype", b"<html", b"<head", b"<?xml")


def is_web_page(head: bytes) -> bool:
    r"""Tell whether a file's first bytes are those of a web page.

    Servers give their error and log-in pages under the name of the file that was asked for.

    Example:
        >>> is_web_page(b"\n<!DOCTYPE html>"), is_web_page(b"Date;Time")
        (True, False)
    """
    return head.lstrip(BYTE_ORDER_MARK + b" \t\r\n").lower().startswith(_WEB_PAGE)


def read_lines(path: Path) -> list[bytes]:
    r"""Read the lines of a text file as bytes, without line ends and byte-order mark.

    Lines end at ``b"\n"`` only: ``splitlines`` also breaks at byte 0x85, which stands inside
    sentences of MR.

    Raises:
        DataError: the file is missing, empty, a web page or binary.
    """
    try:
        content = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; run `pfrnn fetch` for its data set") from error
    if not content.strip():
        raise DataError(f"{path}: the file is empty; delete it and fetch it again")
    if is_web_page(content[:HEAD]):
        raise DataError(
            f"{path}: expected data, got a web page (a server's error page?); delete it and fetch "
            "it again"
        )
    if b"\0" in content:
        raise DataError(f"{path}: expected text, got binary data or UTF-16; fetch it again")
    return [line.removesuffix(b"\r") for line in content.removesuffix(b"\n").split(b"\n")]


class Layout(NamedTuple):
    """How a publisher writes a table.

    Attributes:
        columns: the column names, in order; "" for a column that is left out.
        separator: one character between cells, or "" for runs of white space.
        text: columns of text; all others hold numbers.
        header: whether the first line holds the names.
        decimal: the decimal sign.
        missing: column of numbers -> its word for a missing value, which becomes NaN.
    """

    columns: Sequence[str]
    separator: str = ","
    text: Collection[str] = ()
    header: bool = True
    decimal: str = "."
    missing: Mapping[str, str] = {}


def read_table(path: Path, layout: Layout) -> Table:
    """Parse a table.

    Returns:
        Column name -> float64 (correctly rounded) or text without outer spaces, a row a line.

    Raises:
        DataError: naming the file, line, column, what was expected and what came.
    """
    import pandas as pd

    lines = [_decoded(path, number, line) for number, line in enumerate(read_lines(path), 1)]
    # Spreadsheets leave rows of nothing but separators behind the last one.
    filled = [i for i, line in enumerate(lines) if line.strip(layout.separator + ' "\t')]
    if layout.header:
        _check_header(path, lines, filled, layout)
        filled = filled[1:]
    if not filled:
        raise DataError(f"{path}: expected rows of data, got none; fetch it again")
    names = [name or f"unnamed {i}" for i, name in enumerate(layout.columns)]
    numbers = [name for name in layout.columns if name and name not in layout.text]
    try:
        frame = pd.read_csv(
            io.StringIO("\n".join(lines[i] for i in filled)),
            sep=layout.separator or r"\s+",
            names=names,
            header=None,
            index_col=False,
            dtype={name: "float64" if name in numbers else str for name in names},
            decimal=layout.decimal,
            keep_default_na=False,
            na_values={name: [word] for name, word in layout.missing.items()},
        )
        table: Table = {
            name: frame[name].to_numpy(dtype=np.float64)
            if name in numbers
            else frame[name].str.strip().to_numpy(dtype=str)
            for name in filter(None, layout.columns)
        }
    except ValueError as error:
        raise _fault(path, lines, filled, layout) from error
    for name, cells in table.items():
        allowed = np.isnan(cells) if name in layout.missing else False
        if not ((np.isfinite(cells) | allowed) if name in numbers else cells != "").all():
            raise _fault(path, lines, filled, layout)
    return table


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("ascii")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: line {number}: expected plain ASCII, got byte 0x{line[error.start]:02x}; the "
            "file was saved in another encoding: get the publisher's"
        ) from error


def _cells(line: str, separator: str) -> list[str]:
    cells = next(csv.reader([line], delimiter=separator)) if separator else line.split()
    return [cell.strip() for cell in cells]


def _check_header(path: Path, lines: list[str], filled: list[int], layout: Layout) -> None:
    """Compare the first line with the expected names; say which lines to delete if that cures."""
    for place, i in enumerate(filled[:6]):
        if _cells(lines[i], layout.separator) == list(layout.columns):
            if place == 0:
                return
            raise DataError(
                f"{path}: line {filled[0] + 1}: expected the header, which stands in line {i + 1}: "
                f"delete the lines above it (1 to {i})"
            )
    got = _cells(lines[filled[0]], layout.separator)
    parts = [f"column {name!r} is missing" for name in layout.columns if name not in got]
    parts += [f"column {name!r} is not known" for name in got if name not in layout.columns]
    raise DataError(
        f"{path}: line {filled[0] + 1}: expected the header {','.join(layout.columns)[:80]}: "
        f"{'; '.join(parts[:2]) or 'another order'}; get the publisher's file"
    )


def _fault(path: Path, lines: list[str], filled: list[int], layout: Layout) -> DataError:
    """Find the first faulty cell of a table that the fast parser did not accept."""
    for i in filled:
        cells = _cells(lines[i], layout.separator)
        where = f"{path}: line {i + 1}"
        if len(cells) != len(layout.columns):
            return DataError(
                f"{where}: expected {len(layout.columns)} cells, got {len(cells)}; get the "
                "publisher's file"
            )
        wrong = [place for place, cell in enumerate(cells) if not _is_good(cell, place, layout)]
        if not wrong:
            continue
        numbers = len(layout.columns) - len(layout.text)
        if i == filled[0] and not layout.header and len(wrong) == numbers:
            return DataError(f"{where}: expected data, got a header line: delete line {i + 1}")
        name, cell = layout.columns[wrong[0]], cells[wrong[0]]
        wanted = "text" if name in layout.text else "a number"
        return DataError(
            f"{where}, column {name!r}: expected {wanted}, got "
            f"{repr(cell[:40]) if cell else 'an empty cell'}; get the publisher's file"
        )
    return DataError(f"{path}: cannot be read as a table; get the publisher's file")


def _is_good(cell: str, place: int, layout: Layout) -> bool:
    name = layout.columns[place]
    if not name or layout.missing.get(name) == cell:
        return True
    if name in layout.text:
        return bool(cell)
    try:
        number = cell if layout.decimal == "." else cell.replace(".", "?").replace(",", ".")
        # float() also takes 1_000, which no publisher means as a number.
        return math.isfinite(float(number)) and "_" not in cell
    except ValueError:
        return False


def numbers_of(path: Path, table: Table, column: str, names: Sequence[str]) -> npt.NDArray[Any]:
    """Replace a column's words by their numbers in ``names``: int64.

    Raises:
        DataError: a cell is none of the names.
    """
    numbers = {name: index for index, name in enumerate(names)}
    found = np.array([numbers.get(cell, -1) for cell in table[column]], dtype=np.int64)
    if (found < 0).any():
        row = int((found < 0).argmax())
        raise DataError(
            f"{path}: data row {row + 1}, column {column!r}: expected one of {', '.join(names)}, "
            f"got {str(table[column][row])[:40]!r}; get the publisher's file"
        )
    return found


def times_of(path: Path, cells: Sequence[str], pattern: str, step: int) -> npt.NDArray[np.int64]:
    """Read times, all ``step`` seconds apart, as whole steps since 1970-01-01 without time zone.

    Args:
        path: the file, for messages.
        cells: one a row.
        pattern: as for ``datetime.strptime``.
        step: seconds from row to row.

    Raises:
        DataError: a cell is no such time, or rows are missing, doubled or out of order.
    """
    import pandas as pd

    try:
        moments = pd.to_datetime(pd.Series(cells), format=pattern)
    except ValueError as error:
        raise DataError(
            f"{path}: expected times like {pattern}: {error}; get the publisher's file"
        ) from error
    times = moments.to_numpy("datetime64[s]").astype(np.int64)
    wrong = np.flatnonzero(np.diff(times) != step)
    if len(wrong):
        raise DataError(
            f"{path}: data row {wrong[0] + 2}: expected a time {step} s after the row before, got "
            f"{np.diff(times)[wrong[0]]}: rows are missing or out of order; get the publisher's "
            "file"
        )
    return times // step
