"""One reader for all sets: what makes no difference, and what is an error with its place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.digests import arrays_digest, is_accepted
from pfrnn.study.data.raw import Layout, read_table
from pfrnn.study.data.registry import dataset
from tests.study.data import class_raw
from tests.study.data.invented import ONE_FILE, air_bytes, write_raw

MAIN = {name: file for name, (file, _) in ONE_FILE.items()} | {
    "arem": "walking/dataset3.csv",
    "lpa": "ConfLongDemo_JSI.txt",
    "gas": "HT_Sensor_dataset.dat",
    "uid": "7.csv",
    "mr": "textgcn_split/text_train.txt",
    "r52": "r52-train-all-terms.txt",
}


def write(name: str, folder: Path) -> Path:
    """A set's invented raw files; return its folder."""
    return (
        class_raw.write(name, folder) if name in class_raw.SETS else write_raw(name, folder / name)
    )


def table(name: str, folder: Path) -> str:
    return arrays_digest(dataset(name).read(folder))  # type: ignore[misc]


@pytest.mark.parametrize("name", MAIN)
def test_line_ends_and_byte_order_marks_make_no_difference(name: str, tmp_path: Path) -> None:
    folder = write(name, tmp_path)
    expected = table(name, folder)
    path = folder / MAIN[name]
    unix = path.read_bytes().replace(b"\r\n", b"\n")
    for body in (
        unix,
        unix.replace(b"\n", b"\r\n"),
        unix.rstrip(b"\n"),
        b"\xef\xbb\xbf" + unix,
    ):
        path.write_bytes(body)
        assert table(name, folder) == expected


@pytest.mark.parametrize("body", [b"", b" \n", b"\n<!DOCTYPE html><p>Log in", b"a\0b"])
@pytest.mark.parametrize("name", MAIN)
def test_no_data_is_an_error_for_every_set(name: str, body: bytes, tmp_path: Path) -> None:
    folder = write(name, tmp_path)
    (folder / MAIN[name]).write_bytes(body)
    with pytest.raises(DataError, match=MAIN[name]):
        table(name, folder)


LAYOUT = Layout(("n", "word", "v"), text=("word",), missing={"v": "NA"})
GOOD = b"n,word,v\n1,a,2.5\n\n2,b,NA\n"
FAULTS: dict[str, tuple[bytes, str]] = {
    "short row": (b"n,word,v\n1,a\n", "line 2: expected 3 cells, got 2"),
    "long row": (GOOD + b"3,c,1,1\n", "line 5: expected 3 cells, got 4"),
    "word": (GOOD + b"x,c,1\n", "line 5, column 'n': expected a number, got 'x'"),
    "emptied": (GOOD + b"3,c,\n", "line 5, column 'v': expected a number, got an empty cell"),
    "no text": (GOOD + b"3,,1\n", "line 5, column 'word': expected text, got an empty cell"),
    "inf": (GOOD + b"inf,c,1\n", "line 5, column 'n': expected a number, got 'inf'"),
    "missing elsewhere": (GOOD + b"NA,c,1\n", "line 5, column 'n'"),
    "comma": (b'n,word,v\n"1,5",a,2\n', "line 2, column 'n': expected a number, got '1,5'"),
    "encoding": ("n,word,v\n1,é,2\n".encode(), "line 2: expected plain ASCII"),
    "column": (b"n,word,w\n1,a,2\n", "line 1: .*column 'v' is missing; column 'w' is not known"),
    "order": (b"word,n,v\na,1,2\n", "line 1: .*another order"),
    "title": (b"My data\n" + GOOD, r"delete the lines above it \(1 to 1\)"),
    "no rows": (b"n,word,v\n", "expected rows of data, got none"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_with_their_place(fault: str, tmp_path: Path) -> None:
    body, message = FAULTS[fault]
    (tmp_path / "f").write_bytes(body)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "f", LAYOUT)


def test_a_good_table(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(GOOD)
    found = read_table(tmp_path / "f", LAYOUT)
    assert found["n"].tolist() == [1, 2]
    assert found["word"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(found["v"], [2.5, np.nan])
    (tmp_path / "f").write_bytes(b"-200;1,5;0.1\n")
    with pytest.raises(DataError, match=r"column 'c': expected a number, got '0\.1'"):
        read_table(tmp_path / "f", Layout(("a", "b", "c"), ";", header=False, decimal=","))


def test_a_header_where_none_belongs_names_the_line_to_delete(tmp_path: Path) -> None:
    folder = class_raw.write("uid", tmp_path)
    path = folder / "7.csv"
    path.write_bytes(b"time,x,y,z\n" + path.read_bytes())
    with pytest.raises(
        DataError, match=r"7\.csv: line 1: expected data, got a header.*delete line 1"
    ):
        table("uid", folder)


@pytest.mark.parametrize("code", ["-200", "-200,0", "-200,00", "-2e2", "-200,"])
def test_missing_codes_are_compared_as_numbers(code: str, tmp_path: Path) -> None:
    folder = write_raw("air", tmp_path)
    expected = table("air", folder)
    (folder / MAIN["air"]).write_bytes(air_bytes().replace(b"-200", code.encode()))
    assert table("air", folder) == expected


EDITS: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "gap": ("air", lambda b: b.replace(b.split(b"\n")[9] + b"\n", b""), "3600 s after the row"),
    "wind": ("pm", lambda b: b.replace(b",NW,", b",WN,", 1), "'cbwd': expected one of NE"),
    "date": ("aep", lambda b: b.replace(b"2016-01-11 17:10", b"11.01.2016 17:10"), "times like"),
    "rssi": ("arem", lambda b: b.replace(b"\n1500,", b"\n1500,x", 1), "expected numbers"),
    "tag": ("lpa", lambda b: b.replace(b"010-", b"011-", 1), "column 'tag': expected one of"),
    "induction": ("gas", lambda b: b.replace(b"\n0  ", b"\n99  "), "do not fit"),
    "label": ("r52", lambda b: b.replace(b"earn\t", b"earned\t", 1), "one of the 52 labels"),
    "sentence": ("mr", lambda b: b.replace(b"\r\n", b"\r\n\r\n", 1), "got a blank line"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_sets_own_faults_are_named(edit: str, tmp_path: Path) -> None:
    name, change, message = EDITS[edit]
    folder = write(name, tmp_path)
    path = folder / MAIN[name]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        table(name, folder)


def test_digests_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc\n")
    known: Any = {"md5": hashlib.md5(b"abc\n"), "sha1": hashlib.sha1(b"abc\n")}
    for kind, digest in known.items():
        assert is_accepted(path, ["0" * 64, f"{kind}:{digest.hexdigest()}"])
    assert is_accepted(path, ["git:8baef1b4abc478178b004d62031cf7fe6db6f903"])
    assert not is_accepted(path, [f"md5:{'0' * 32}"])
