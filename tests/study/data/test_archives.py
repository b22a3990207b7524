"""Archives: what is taken out of them, and which are refused."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.archives import extract_member
from pfrnn.study.data.base import Address
from pfrnn.study.data.rawstate import inspect_raw
from pfrnn.study.data.remote import fetch
from tests.study.data.loopback import Site, content
from tests.study.data.toy import BODY, FAST, OTHER, toy, visible, zipped

pytestmark = pytest.mark.usefixtures("no_mirror")


ARCHIVES = {
    "zip": (zipped(**{"toy.csv": BODY}), "toy.csv"),
    "folder in a zip": (zipped(**{"data/toy.csv": BODY}), "toy.csv"),
    "zip in a zip": (zipped(**{"inner.zip": zipped(**{"toy.csv": BODY})}), "inner.zip!toy.csv"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_archive(kind: str, site: Site, tmp_path: Path) -> None:
    body, member = ARCHIVES[kind]
    site.answers["/all.zip"] = content(body)
    address = Address(site.url + "/all.zip", {"toy.csv": member})
    assert fetch(toy(address), tmp_path / "raw", policy=FAST).state == "whole"
    assert visible(tmp_path / "raw") == ["fetch.json", "toy.csv"]


def tarred(name: str, body: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(body)
        archive.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def test_tar(site: Site, tmp_path: Path) -> None:
    site.answers["/all.tar.gz"] = content(tarred("toys/toy.csv", BODY))
    address = Address(site.url + "/all.tar.gz", {"toy.csv": "toys/toy.csv"})
    assert fetch(toy(address), tmp_path / "raw", policy=FAST).state == "whole"


CLIMBING = {
    "zip": zipped(**{"toy.csv": BODY, "../evil": b"x"}),
    "absolute": zipped(**{"toy.csv": BODY, "/evil": b"x"}),
    "backslash": zipped(**{"toy.csv": BODY, "..\\evil": b"x"}),
    "drive": zipped(**{"toy.csv": BODY, "C:evil": b"x"}),
    "tar": tarred("../toy.csv", BODY),
    "inner": zipped(**{"inner.zip": zipped(**{"../toy.csv": BODY})}),
}


@pytest.mark.parametrize("kind", CLIMBING)
def test_climbing_archive_is_refused(kind: str, tmp_path: Path) -> None:
    archive = tmp_path / "all.zip"
    archive.write_bytes(CLIMBING[kind])
    member = "inner.zip!toy.csv" if kind == "inner" else "toy.csv"
    with pytest.raises(DataError, match=r"all.zip.*: refused, its member .* climbs out"):
        extract_member(archive, member, tmp_path / "deep/deeper/toy.csv")
    assert not list(tmp_path.rglob("evil"))
    assert not list(tmp_path.rglob("toy.csv"))


BROKEN = {
    "member missing": (zipped(**{"other.csv": BODY}), r"no member 'toy.csv'; it holds other.csv"),
    "html page": (b"<!DOCTYPE html><html></html>", r"expected a zip or tar archive, got an HTML"),
    "empty": (b"", r"expected a zip or tar archive, got an empty file"),
    "cut": (zipped(**{"toy.csv": BODY})[:-30], r"expected a zip or tar archive"),
    "flipped byte": (
        zipped(**{"toy.csv": BODY}).replace(b"7,49", b"7,48", 1),
        r"damaged archive \(Bad CRC-32",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_archive(kind: str, site: Site, tmp_path: Path) -> None:
    body, message = BROKEN[kind]
    site.answers["/all.zip"] = content(body)
    address = Address(site.url + "/all.zip", {"toy.csv": "toy.csv"})
    with pytest.raises(DataError, match=message):
        fetch(toy(address), tmp_path / "raw", policy=FAST)
    assert visible(tmp_path / "raw") == []


def test_file_out_of_a_known_archive_is_trusted(site: Site, tmp_path: Path) -> None:
    """Where the file's own digest is unknown, the archive's decides; the record remembers it."""
    body = zipped(**{"toy.csv": BODY})
    site.answers["/all.zip"] = content(body)
    known = "sha1:" + hashlib.sha1(body).hexdigest()
    address = Address(site.url + "/all.zip", {"toy.csv": "toy.csv"}, (known,))
    dataset = toy(address, digests=())
    assert fetch(dataset, tmp_path / "raw", policy=FAST).state == "whole"
    assert inspect_raw(dataset, tmp_path / "raw/toy").state == "whole"
    (tmp_path / "raw/toy/toy.csv").write_bytes(OTHER)
    with pytest.raises(DataError, match="not the publisher's file"):
        inspect_raw(dataset, tmp_path / "raw/toy")
