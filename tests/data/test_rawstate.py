"""Verification: whole, excerpt, unverified, or refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from pfrnn.data.base import Address, RawFile
from pfrnn.data.digests import arrays_digest, is_accepted
from pfrnn.data.rawstate import inspect_raw
from pfrnn.data.remote import fetch
from pfrnn.errors import DataError, MissingDataError
from pfrnn.files import read_json
from tests.data.loopback import Site, content
from tests.data.toy import BODY, FAST, OTHER, read, sha, toy, visible

pytestmark = pytest.mark.usefixtures("no_mirror")


@pytest.mark.parametrize("kind", ["sha256", "md5", "sha1", "git"])
def test_digest_kinds(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    path.write_bytes(BODY)
    body = b"blob %d\0" % len(BODY) + BODY if kind == "git" else BODY
    digest = hashlib.new("sha1" if kind == "git" else kind, body).hexdigest()
    assert is_accepted(path, ("0" * 64, f"{kind}:{digest}"))
    path.write_bytes(OTHER)
    assert not is_accepted(path, (f"{kind}:{digest}",))


def test_wrong_content_is_refused_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.answers["/toy.csv"] = content(OTHER)
    dataset = toy(Address(site.url + "/toy.csv"), tables=(arrays_digest({"a": np.zeros(1)}),))
    with pytest.raises(DataError) as caught:
        fetch(dataset, tmp_path / "raw", policy=FAST)
    message = str(caught.value)
    assert sha(OTHER) in message
    assert sha(BODY) in message
    assert "its content is another" in message
    assert "--allow-unverified toy" in message
    assert visible(tmp_path / "raw") == []


def test_html_page_under_the_files_name(site: Site, tmp_path: Path) -> None:
    site.answers["/toy.csv"] = content(b"<html>please log in</html>")
    dataset = toy(Address(site.url + "/toy.csv"), tables=("0" * 64,))
    with pytest.raises(DataError, match=r"toy.csv: line 1: expected data, got an HTML page"):
        fetch(dataset, tmp_path / "raw", policy=FAST)


def test_table_digest_decides_where_only_bytes_differ(mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "toy.csv").write_bytes(BODY)
    dataset = toy(tables=(arrays_digest(read(tmp_path)),))
    (mirror / "toy.csv").write_bytes(BODY.replace(b"\r\n", b"\n"))
    state = fetch(dataset, tmp_path / "raw", policy=FAST)
    assert state.state == "whole"
    assert "bytes of toy.csv differ" in state.note


def test_allowed_by_name_is_unverified_ever_after(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(OTHER)
    with pytest.raises(DataError, match="not the publisher's file"):
        fetch(toy(), tmp_path / "raw", policy=FAST)
    state = fetch(toy(), tmp_path / "raw", allow_unverified=True, policy=FAST)
    assert state.state == "unverified"
    assert inspect_raw(toy(), tmp_path / "raw/toy").state == "unverified"
    assert fetch(toy(), tmp_path / "raw", policy=FAST).state == "unverified"
    (tmp_path / "raw/toy/toy.csv").write_bytes(OTHER + b"9,9\r\n")
    with pytest.raises(DataError, match="not the publisher's file"):
        inspect_raw(toy(), tmp_path / "raw/toy")


def test_partial_marks_an_excerpt_unless_the_file_is_whole(mirror: Path, tmp_path: Path) -> None:
    (mirror / "PARTIAL.md").write_text("Excerpt: a part.\n")
    (mirror / "toy.csv").write_bytes(OTHER)
    assert fetch(toy(), tmp_path / "raw", policy=FAST).state == "excerpt"
    assert inspect_raw(toy(), tmp_path / "raw/toy").note == "Excerpt: a part."
    (tmp_path / "raw/toy/toy.csv").write_bytes(BODY)
    assert inspect_raw(toy(), tmp_path / "raw/toy").state == "whole"


def test_known_excerpts_exclude_others(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "PARTIAL.md").write_text("Excerpt.\n")
    dataset = toy(files=(RawFile("toy.csv", (sha(BODY),), excerpts=(sha(OTHER),)),))
    (folder / "toy.csv").write_bytes(OTHER)
    assert inspect_raw(dataset, folder).state == "excerpt"
    (folder / "toy.csv").write_bytes(OTHER.replace(b"3,9", b"9,3"))
    with pytest.raises(DataError, match="not the publisher's file"):
        inspect_raw(dataset, folder)


def test_users_own_file_is_not_overwritten(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    folder = tmp_path / "raw/toy"
    folder.mkdir(parents=True)
    (folder / "toy.csv").write_bytes(OTHER)
    with pytest.raises(DataError, match="Delete it and run `pfrnn fetch toy`"):
        fetch(toy(), tmp_path / "raw", policy=FAST)
    assert (folder / "toy.csv").read_bytes() == OTHER
    (folder / "toy.csv").write_bytes(BODY)
    assert fetch(toy(), tmp_path / "raw", policy=FAST).state == "whole"
    assert read_json(folder / "fetch.json")["origin"] == {"toy.csv": "put there by the user"}


def test_missing_says_why_and_the_two_cures(site: Site, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        fetch(toy(Address(site.url + "/toy.csv")), tmp_path / "raw", policy=FAST)
    message = str(caught.value)
    for part in ("HTTP status 404", "PFRNN_DATA_MIRROR", str(tmp_path / "raw/toy"), "toy.csv"):
        assert part in message


def test_optional_file_may_be_missing(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    files = (RawFile("toy.csv", (sha(BODY),)), RawFile("more.csv", ("0" * 64,), optional=True))
    assert set(fetch(toy(files=files), tmp_path / "raw", policy=FAST).sha256) == {"toy.csv"}


def test_a_removed_record_is_remembered(site: Site, mirror: Path, tmp_path: Path) -> None:
    """A workflow engine removes fetch.json before it fetches again; nothing else is lost."""
    (mirror / "toy.csv").write_bytes(OTHER)
    fetch(toy(), tmp_path / "raw", allow_unverified=True, policy=FAST)
    record = tmp_path / "raw/toy/fetch.json"
    written = record.read_bytes()
    record.unlink()
    assert fetch(toy(), tmp_path / "raw", policy=FAST).state == "unverified"
    assert record.read_bytes() == written


def test_damaged_record_is_named(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    fetch(toy(), tmp_path / "raw", policy=FAST)
    (tmp_path / "raw/toy/fetch.json").write_text("{")
    with pytest.raises(DataError, match=r"fetch.json: not JSON .*delete it"):
        inspect_raw(toy(), tmp_path / "raw/toy")
