"""Every listed damage done to a file of every real set, through `fetch` from a damaged mirror.

What comes out is an error that names the file and the fault, or, where the damage is harmless and
the set whole, the publisher's table; never other numbers.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.base import Dataset
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.remote import fetch

MIRROR = Path(os.environ.get("PFRNN_DATA_MIRROR", "/nowhere"))
pytestmark = [
    pytest.mark.mirror,
    pytest.mark.skipif(
        not (MIRROR / "air").is_dir(),
        reason="the real raw files are needed: set PFRNN_DATA_MIRROR to their folder",
    ),
]


class Target(NamedTuple):
    """The file of a set that is damaged.

    Attributes:
        file: its name; aep's lies in a zip in the mirror.
        separator: between its cells; None where a line is one text.
        header: a column's name in the header; None without a header.
        whole: False for an excerpt, of which only the very bytes are known.
    """

    file: str
    separator: bytes | None
    header: bytes | None
    whole: bool = True


TARGETS = {
    "aep": Target("energydata_complete.csv", b",", b"lights"),
    "air": Target("AirQualityUCI.csv", b";", b"NOx(GT)"),
    "arem": Target("walking/dataset3.csv", b",", b"avg_rss13"),
    "gas": Target("HT_Sensor_dataset.dat", b"  ", b"R5", whole=False),
    "lpa": Target("ConfLongDemo_JSI.txt", b",", None, whole=False),
    "mr": Target("textgcn_split/text_train.txt", None, None),
    "nasdaq": Target("nasdaq100_padding.csv", b",", b"AAPL", whole=False),
    "pm": Target("PRSA_data_2010.1.1-2014.12.31.csv", b",", b"DEWP"),
    "r52": Target("r52-train-all-terms.txt", b"\t", None),
    "uid": Target("7.csv", b",", None),
}


def cut(raw: bytes, target: Target) -> bytes:
    return raw[: raw.index(b"\n", len(raw) // 2) + 8]


def column_gone(raw: bytes, target: Target) -> bytes:
    separator = target.separator or b" "
    cells = [line.split(separator) for line in raw.split(b"\n")]
    return b"\n".join(separator.join(c[:1] + c[2:] if len(c) > 1 else c) for c in cells)


def header_renamed(raw: bytes, target: Target) -> bytes:
    return raw.replace(target.header or b"", b"renamed", 1)


def wrong_separator(raw: bytes, target: Target) -> bytes:
    return raw.replace(target.separator or b" ", b"|")


def nan_text(raw: bytes, target: Target) -> bytes:
    """In place of the second cell of line 60."""
    lines = raw.split(b"\n")
    cells = lines[59].split(target.separator or b" ")
    cells[1] = b"NaN"
    lines[59] = (target.separator or b" ").join(cells)
    return b"\n".join(lines)


def rows_swapped(raw: bytes, target: Target) -> bytes:
    lines = raw.split(b"\n")
    lines[60], lines[61] = lines[61], lines[60]
    return b"\n".join(lines)


def line_ends(raw: bytes, target: Target) -> bytes:
    if b"\r\n" in raw:
        return raw.replace(b"\r\n", b"\n")
    return raw.replace(b"\n", b"\r\n")


DAMAGE: dict[str, Callable[[bytes, Target], bytes]] = {
    "cut in the middle of a line": cut,
    "a column gone": column_gone,
    "header renamed": header_renamed,
    "an extra title line": lambda raw, target: b"A title for this table\r\n" + raw,
    "wrong separator": wrong_separator,
    "wrong encoding": lambda raw, target: raw.decode("latin-1").encode("utf-16"),
    "other line ends": line_ends,
    "blank lines": lambda raw, target: raw.replace(b"\n", b"\n\n", 40),
    "NaN text": nan_text,
    "rows swapped in time": rows_swapped,
    "an HTML error page": lambda raw, target: b"<!DOCTYPE html>\n<html>503 Unavailable</html>\n",
}
HARMLESS = ("other line ends", "blank lines")
# A blank line is a sentence without words: it would shift the labels, which lie in another file.
HARMFUL_AFTER_ALL = [("mr", "blank lines")]
CASES = [
    (name, damage)
    for name, target in TARGETS.items()
    for damage in DAMAGE
    if not (damage == "header renamed" and target.header is None)
    and not (damage in ("a column gone", "wrong separator") and target.separator is None)
]
ARCHIVES = {
    "a path that climbs out": ({"../evil": b"x"}, r"climbs out of the archive's folder"),
    "the member missing": ({"readme.txt": b"x"}, r"has no member"),
}


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a mirror of links to the real files, but for one."""

    def make(name: str, without: str) -> Path:
        folder = tmp_path / "mirror" / name
        for path in (MIRROR / name).rglob("*"):
            link = folder / path.relative_to(MIRROR / name)
            if path.is_file() and link.with_suffix("") != (folder / without).with_suffix(""):
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)
        (folder / without).parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("PFRNN_DATA_MIRROR", str(folder.parent))
        return folder / without

    return make


def without_addresses(name: str) -> Dataset:
    """The set, to be had from the mirror alone."""
    found = dataset(name)
    return found._replace(card=found.card._replace(addresses=()))


def body_of(name: str) -> bytes:
    plain = MIRROR / name / TARGETS[name].file
    if plain.is_file():
        return plain.read_bytes()
    with zipfile.ZipFile(plain.with_suffix(".zip")) as archive:
        return archive.read(plain.name)


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_an_error_or_the_same_table(
    name: str, damage: str, damaged: Callable[..., Path], tmp_path: Path
) -> None:
    target, body = TARGETS[name], body_of(name)
    changed = DAMAGE[damage](body, target)
    assert changed != body
    path = damaged(name, target.file)
    path.write_bytes(changed)
    found = without_addresses(name)
    if damage in HARMLESS and target.whole and (name, damage) not in HARMFUL_AFTER_ALL:
        assert fetch(found, tmp_path / "raw").state == "whole"
        assert arrays_digest(found.read(tmp_path / "raw" / name)) in found.card.tables  # type: ignore[misc]
        return
    with pytest.raises(DataError) as caught:
        fetch(found, tmp_path / "raw")
    message = str(caught.value)
    assert str(path) in message
    assert "staging" not in message
    assert not (tmp_path / "raw" / name).exists()
    # Not even who vouches for the set gets what its parser refuses.
    if "reading it says" in message or damage == "an HTML error page":
        with pytest.raises(DataError, match=r"not even unverified|got an HTML page"):
            fetch(found, tmp_path / "raw", allow_unverified=True)


@pytest.mark.parametrize("fault", ARCHIVES)
@pytest.mark.parametrize("name", TARGETS)
def test_archives(name: str, fault: str, damaged: Callable[..., Path], tmp_path: Path) -> None:
    path = damaged(name, TARGETS[name].file)
    members, message = ARCHIVES[fault]
    archive = path.parents[len(Path(TARGETS[name].file).parts) - 1] / f"{path.stem}.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for member, body in members.items():
            opened.writestr(member, body)
        if fault != "the member missing":
            opened.writestr(TARGETS[name].file, body_of(name))
    with pytest.raises(DataError, match=message) as caught:
        fetch(without_addresses(name), tmp_path / "raw")
    assert str(archive) in str(caught.value)
    assert not (tmp_path / "raw" / name).exists()
    assert not list(tmp_path.rglob("evil"))
