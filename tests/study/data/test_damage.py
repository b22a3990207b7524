"""Damaged raw files: a clear error, or, where the damage is harmless, the same table."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.sets import aep, arem
from tests.study.data.invented import ONE_FILE, arem_bytes, write_raw

SEPARATOR = {"air": b";", "pm": b",", "aep": b",", "nasdaq": b","}
Damage = Callable[[bytes, bytes], bytes]


def lines_of(raw: bytes) -> list[bytes]:
    return raw.split(b"\n")


def edit(raw: bytes, line: int, change: Callable[[bytes], bytes]) -> bytes:
    lines = lines_of(raw)
    lines[line - 1] = change(lines[line - 1])
    return b"\n".join(lines)


def drop_column(raw: bytes, separator: bytes, index: int = 4) -> bytes:
    kept = []
    for line in lines_of(raw):
        cells = line.split(separator)
        kept.append(separator.join(cells[:index] + cells[index + 1 :]))
    return b"\n".join(kept)


def set_cell(raw: bytes, separator: bytes, text: bytes, line: int = 20, index: int = 8) -> bytes:
    def change(old: bytes) -> bytes:
        cells = old.split(separator)
        cells[index] = text
        return separator.join(cells)

    return edit(raw, line, change)


def swap_rows(raw: bytes, a: int = 30, b: int = 31) -> bytes:
    lines = lines_of(raw)
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def first_blocks(raw: bytes, separator: bytes) -> bytes:
    """Cut in the middle of the line that ends the first half."""
    half = lines_of(raw)[: len(lines_of(raw)) // 2]
    return b"\n".join(half)[: -len(half[-1]) // 2]


# name: (damage, what the message must say)
DAMAGE: dict[str, tuple[Damage, str]] = {
    "cut mid-line": (first_blocks, r"line \d+: expected \d+ cells, got \d+.*middle of a line"),
    "column gone": (drop_column, r"line 1: header: column '.*' is missing"),
    "header renamed": (
        lambda raw, sep: edit(raw, 1, lambda line: line.replace(line.split(sep)[5], b"renamed")),
        r"line 1: header: column .* is missing; column 'renamed' is not known",
    ),
    "title line": (
        lambda raw, sep: b"A title for this table\r\n" + raw,
        r"line 1: expected the header, got 'A title.*line 2: delete the lines above",
    ),
    "wrong separator": (
        lambda raw, sep: raw.replace(sep, b"\t"),
        r"line 1: expected columns separated by (semicolons|commas), got tabs",
    ),
    "utf-16": (lambda raw, sep: raw.decode().encode("utf-16"), r"line 1: expected ascii text"),
    "latin-1 letter": (
        lambda raw, sep: set_cell(raw, sep, "é".encode("latin-1")),
        r"line 20: expected ascii text, got byte 0xe9",
    ),
    "nan text": (
        lambda raw, sep: set_cell(raw, sep, b"NaN"),
        r"line 20, column '.+': expected a number, got 'NaN'",
    ),
    "word": (
        lambda raw, sep: set_cell(raw, sep, b"twelve"),
        r"line 20, column '.+': expected a number, got 'twelve'",
    ),
    "empty cell": (
        lambda raw, sep: set_cell(raw, sep, b""),
        r"line 20, column '.+': expected a number, got an empty cell",
    ),
    "infinity": (lambda raw, sep: set_cell(raw, sep, b"1e999"), r"line 20, column '.+'"),
    "underscore": (lambda raw, sep: set_cell(raw, sep, b"1_0"), r"line 20, column '.+'"),
    "html page": (
        lambda raw, sep: b"\n<!DOCTYPE html><html><body>404 Not Found</body></html>",
        r"got an HTML page",
    ),
    "empty file": (lambda raw, sep: b"", r"the file is empty"),
    "only a header": (lambda raw, sep: lines_of(raw)[0], r"expected rows below the header"),
    "row gone": (
        lambda raw, sep: b"\n".join(x for i, x in enumerate(lines_of(raw)) if i != 50),
        r"line 51(: expected \d+ (hours|seconds) after the row.*rows are missing|, column 'No')",
    ),
    "rows swapped": (
        lambda raw, sep: swap_rows(raw),
        r"line 31(: expected \d+ (hours|seconds) after the row before|, column 'No': expected 30)",
    ),
    "row doubled": (
        lambda raw, sep: edit(raw, 40, lambda line: line + b"\n" + line),
        r"line 41(: expected \d+ (hours|seconds).*got 0: rows are out|, column 'No')",
    ),
}
# NASDAQ has no time column: only its digest can tell that rows moved (test_rawstate.py).
NO_CLOCK = ("row gone", "rows swapped", "row doubled")


CASES = [
    (name, damage)
    for name in ONE_FILE
    for damage in DAMAGE
    if not (name == "nasdaq" and damage in NO_CLOCK)
]


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_damage_is_named(name: str, damage: str, tmp_path: Path) -> None:
    file, make = ONE_FILE[name]
    change, message = DAMAGE[damage]
    damaged = change(make(), SEPARATOR[name])
    assert damaged != make()
    (tmp_path / file).write_bytes(damaged)
    with pytest.raises(DataError) as caught:
        dataset(name).read(tmp_path)
    text = str(caught.value)
    assert file in text
    assert re.search(message, text), text
    assert re.search(r"publisher's|fetch|delete", text), f"no cure in: {text}"


HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "LF": lambda raw: raw.replace(b"\r\n", b"\n"),
    "CRLF": lambda raw: raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
    "blank lines": lambda raw: raw.replace(b"\n", b"\n\n", 30) + b"\r\n\r\n",
    "byte-order mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "no final newline": lambda raw: raw.rstrip(b"\r\n;"),
}


@pytest.mark.parametrize("change", HARMLESS)
@pytest.mark.parametrize("name", ONE_FILE)
def test_harmless_change_gives_the_same_table(name: str, change: str, tmp_path: Path) -> None:
    file, make = ONE_FILE[name]
    raw = make()
    (tmp_path / file).write_bytes(raw)
    expected = arrays_digest(dataset(name).read(tmp_path))
    changed = HARMLESS[change](raw)
    if name == "air" and change == "no final newline":
        changed += b";;"  # the empty columns belong to the last row
    (tmp_path / file).write_bytes(changed)
    assert arrays_digest(dataset(name).read(tmp_path)) == expected


def test_decimal_point_instead_of_comma(tmp_path: Path) -> None:
    file, make = ONE_FILE["air"]
    raw = edit(make(), 7, lambda line: line.replace(b",", b"."))
    (tmp_path / file).write_bytes(raw)
    with pytest.raises(DataError, match=r"line 7, column '.+': expected a decimal comma, got '\d"):
        dataset("air").read(tmp_path)


def test_decimal_comma_instead_of_point(tmp_path: Path) -> None:
    file, make = ONE_FILE["aep"]
    raw = edit(make(), 7, lambda line: line.replace(b".", b","))
    (tmp_path / file).write_bytes(raw)
    with pytest.raises(DataError, match=r"line 7: expected 29 cells, got \d+"):
        dataset("aep").read(tmp_path)


def test_unknown_wind_is_refused(tmp_path: Path) -> None:
    file, make = ONE_FILE["pm"]
    (tmp_path / file).write_bytes(set_cell(make(), b",", b"XX", index=9))
    with pytest.raises(DataError, match=r"line 20, column 'cbwd': expected one of NE, NW, SE, cv"):
        dataset("pm").read(tmp_path)


def test_impossible_dates_are_refused(tmp_path: Path) -> None:
    file, make = ONE_FILE["air"]
    (tmp_path / file).write_bytes(make().replace(b"11/03/2004", b"03/11/2004.5", 1))
    with pytest.raises(DataError, match=r"line \d+, column 'Date, Time': expected a time"):
        dataset("air").read(tmp_path)
    file, make = ONE_FILE["pm"]
    (tmp_path / file).write_bytes(make().replace(b",2010,1,5,", b",2010,13,5,", 1))
    with pytest.raises(DataError, match=r"line \d+, columns year to hour: not a time"):
        dataset("pm").read(tmp_path)


def test_missing_code_elsewhere_is_refused(tmp_path: Path) -> None:
    """NA may stand in pm2.5 only."""
    file, make = ONE_FILE["pm"]
    (tmp_path / file).write_bytes(set_cell(make(), b",", b"NA", index=6))
    with pytest.raises(DataError, match=r"line 20, column 'DEWP': expected a number, got 'NA'"):
        dataset("pm").read(tmp_path)


def test_author_rows_missing_or_altered(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"author_testing_rows.csv: missing.*split: time"):
        aep.author_test_steps(tmp_path)
    (tmp_path / aep.AUTHOR_TEST).write_bytes(b'"day","Appliances"\n"2016-01-11","10"\n')
    with pytest.raises(DataError, match=r"line 1: expected the header date,"):
        aep.author_test_steps(tmp_path)


AREM_DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut mid-line": (lambda raw: raw[:-10], r"line \d+: expected time and 6 values, got \d"),
    "cut at a line": (
        lambda raw: b"\n".join(raw.split(b"\n")[:300]),
        r"expected 480 rows of data, got 295",
    ),
    "header renamed": (lambda raw: raw.replace(b"var_rss12", b"x"), r"expected the line '# Col"),
    "nan text": (lambda raw: set_cell(raw, b",", b"nan", index=3), r"line 20: expected finite"),
    "word": (lambda raw: set_cell(raw, b",", b"x", index=3), r"line 20: expected numbers"),
    "column gone": (lambda raw: drop_column(raw, b",", 2), r"expected the line '# Columns"),
    "rows swapped": (swap_rows, r"time \d+ after \d+ ms: expected steps of 250 ms"),
    "html page": (lambda raw: b"<html>no</html>", r"got an HTML page"),
    "utf-16": (lambda raw: raw.decode().encode("utf-16"), r"line 1: expected ascii"),
    "empty file": (lambda raw: b"\n", r"the file is empty"),
}


@pytest.mark.parametrize("damage", AREM_DAMAGE)
def test_arem_damage_is_named(damage: str, tmp_path: Path) -> None:
    write_raw("arem", tmp_path)
    change, message = AREM_DAMAGE[damage]
    path = tmp_path / "walking/dataset3.csv"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message) as caught:
        arem.read(tmp_path)
    assert "walking/dataset3.csv" in str(caught.value)


def test_arem_line_ends_and_separators_make_no_difference(tmp_path: Path) -> None:
    write_raw("arem", tmp_path)
    expected = arrays_digest(arem.read(tmp_path))
    path = tmp_path / "walking/dataset3.csv"
    plain = arem_bytes("walking/dataset3.csv").replace(b"\r\n", b"\n")
    for changed in (plain.replace(b"\n", b"\r\n"), plain.replace(b"\n", b"\n\n"), plain + b"\n \n"):
        path.write_bytes(changed)
        assert arrays_digest(arem.read(tmp_path)) == expected


def test_arem_defective_files_are_parsed(tmp_path: Path) -> None:
    write_raw("arem", tmp_path)
    recordings = {recording.name: recording for recording in arem.read_recordings(tmp_path)}
    assert len(recordings) == 88
    assert recordings["bending2/dataset4.csv"].values.shape == (480, 6)  # spaces
    assert recordings["cycling/dataset9.csv"].values.shape == (480, 6)  # trailing comma
    assert recordings["sitting/dataset8.csv"].values.shape == (479, 6)  # one row missing
    path = tmp_path / "standing/dataset5.csv"
    path.write_bytes(edit(path.read_bytes(), 14, lambda line: line + b"\t"))
    assert arem.read_recordings(tmp_path)  # the tab of line 14


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file; run `pfrnn fetch`"):
        dataset("air").read(tmp_path)
