"""Verification: whole, excerpt, unverified, or refused."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest

from pfrnn.errors import DataError, MissingDataError
from pfrnn.study.data import rawstate
from pfrnn.study.data.base import Address, Protocol, RawFile
from pfrnn.study.data.digests import arrays_digest, is_accepted
from pfrnn.study.data.prepare import make_prepared
from pfrnn.study.data.rawstate import check_untouched, inspect_raw
from pfrnn.study.data.remote import fetch
from pfrnn.study.files import read_json
from tests.study.data.loopback import Site, content
from tests.study.data.toy import BODY, FAST, OTHER, read, sha, toy, visible, zipped

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


HTML = b"\n<!DOCTYPE html><html><body>please log in</body></html>"


def test_nobody_can_vouch_for_a_web_page(mirror: Path, tmp_path: Path) -> None:
    """Neither by name, nor as an excerpt, nor for a set without a parser, nor later on."""
    (mirror / "toy.csv").write_bytes(HTML)
    bare = toy()._replace(read=None)
    for dataset in (toy(), bare):
        with pytest.raises(DataError, match=r"toy\.csv: line 1: expected data, got an HTML page"):
            fetch(dataset, tmp_path / "raw", allow_unverified=True, policy=FAST)
    (mirror / "PARTIAL.md").write_text("Excerpt.\n")
    with pytest.raises(DataError, match="got an HTML page"):
        fetch(toy(), tmp_path / "raw", policy=FAST)
    assert visible(tmp_path / "raw") == []
    (mirror / "PARTIAL.md").unlink()
    (mirror / "toy.csv").write_bytes(OTHER)
    fetch(toy(), tmp_path / "raw", allow_unverified=True, policy=FAST)
    (tmp_path / "raw/toy/toy.csv").write_bytes(HTML)
    with pytest.raises(DataError, match="got an HTML page"):
        fetch(toy(), tmp_path / "raw", allow_unverified=True, policy=FAST)


def test_nobody_can_vouch_for_what_cant_be_read(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(OTHER.replace(b"7,49", b"7,x"))
    with pytest.raises(DataError) as caught:
        fetch(toy(), tmp_path / "raw", allow_unverified=True, policy=FAST)
    assert "toy: can't be used, not even unverified: reading it says: " in str(caught.value)
    assert f"{mirror / 'toy.csv'}: line 9, column 'b': expected a number" in str(caught.value)


def test_messages_name_the_place_of_a_damaged_file(
    mirror: Path, site: Site, tmp_path: Path
) -> None:
    """Not the folder that the file lay in for a moment."""
    damaged = OTHER.replace(b"7,49", b"7,x")
    (mirror / "toy.csv").write_bytes(damaged)
    site.answers["/all.zip"] = content(zipped(**{"data/toy.csv": damaged}))
    dataset = toy(Address(site.url + "/all.zip", {"toy.csv": "data/toy.csv"}))
    with pytest.raises(DataError) as caught:
        fetch(dataset, tmp_path / "raw", policy=FAST)
    for place in (mirror / "toy.csv", f"{site.url}/all.zip!data/toy.csv"):
        assert f"{place}: not the publisher's file" in str(caught.value)
        assert f"{place}: line 9" in str(caught.value)
    assert "staging" not in str(caught.value)
    (mirror / "toy.csv").unlink()
    (mirror / "toy.zip").write_bytes(b"PK, but not more")
    with pytest.raises(DataError, match=re.escape(f"{mirror / 'toy.zip'}: expected a zip")):
        fetch(toy(), tmp_path / "raw", policy=FAST)


def test_a_failure_leaves_no_folder(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(OTHER)
    with pytest.raises(DataError):
        fetch(toy(), tmp_path / "raw", policy=FAST)
    assert [path.name for path in (tmp_path / "raw").iterdir()] == [".toy.lock"]


def test_the_record_says_what_the_files_are_not_where_from(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs depend on fetch.json by content: the same file had elsewhere must replan nothing."""
    body = zipped(**{"toy.csv": BODY})
    site.answers |= {"/toy.csv": content(BODY), "/all.zip": content(body)}
    (tmp_path / "mirror/toy").mkdir(parents=True)
    (tmp_path / "mirror/toy/toy.csv").write_bytes(BODY)
    known = (sha(body),)
    records, origins = set(), set()
    for place, address in {
        "file": Address(site.url + "/toy.csv"),
        "archive": Address(site.url + "/all.zip", {"toy.csv": "toy.csv"}),
        "known archive": Address(site.url + "/all.zip", {"toy.csv": "toy.csv"}, known),
        "mirror": None,
        "by hand": None,
    }.items():
        raw = tmp_path / "raw" / place
        if place == "mirror":
            monkeypatch.setenv("PFRNN_DATA_MIRROR", str(tmp_path / "mirror"))
        if place == "by hand":
            (raw / "toy").mkdir(parents=True)
            (raw / "toy/toy.csv").write_bytes(BODY)
        fetch(toy(*[address] if address else []), raw, policy=FAST)
        records.add((raw / "toy/fetch.json").read_bytes())
        origins.add(read_json(raw / "toy/.fetch.json")["origin"]["toy.csv"])
    assert len(records) == 1
    assert len(origins) == 4


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


def test_what_was_changed_after_it_was_fetched_is_not_prepared(
    mirror: Path, tmp_path: Path
) -> None:
    """An excerpt passes for one whatever is in it; the record says which it was."""
    (mirror / "PARTIAL.md").write_text("Excerpt.\n")
    (mirror / "toy.csv").write_bytes(OTHER)
    fetch(toy(), tmp_path, policy=FAST)
    path = tmp_path / "toy/toy.csv"
    path.write_bytes(BODY)
    words = (
        rf"toy\.csv: changed since it was fetched: sha256 {sha(BODY)}, expected sha256 "
        rf"{sha(OTHER)} by .*fetch\.json; .*`pfrnn fetch toy`"
    )
    with pytest.raises(DataError, match=words):
        make_prepared(toy(), Protocol(), 0, tmp_path)
    # As it says: judged and recorded anew, it goes on to the set's own code.
    assert fetch(toy(), tmp_path, policy=FAST).state == "whole"
    with pytest.raises(NotImplementedError):
        make_prepared(toy(), Protocol(), 0, tmp_path)


def test_a_quick_check_reads_what_is_newer_than_the_record(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    card, folder = toy().card, tmp_path / "toy"
    check_untouched(card, folder)  # nothing is there yet
    fetch(toy(), tmp_path, policy=FAST)
    read: list[Path] = []
    whole = rawstate.file_digests
    monkeypatch.setattr(rawstate, "file_digests", lambda path: read.append(path) or whole(path))
    check_untouched(card, folder)
    assert read == []
    later = (folder / "fetch.json").stat().st_mtime_ns + 10**9
    os.utime(folder / "toy.csv", ns=(later, later))
    check_untouched(card, folder)
    assert read == [folder / "toy.csv"]
    (folder / "toy.csv").write_bytes(OTHER)
    os.utime(folder / "toy.csv", ns=(later, later))
    with pytest.raises(DataError, match="changed since it was fetched"):
        check_untouched(card, folder)


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
    assert read_json(folder / ".fetch.json")["origin"] == {"toy.csv": "put there by the user"}


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
    (tmp_path / "raw/toy/.fetch.json").write_text("{")
    with pytest.raises(DataError, match=r"\.fetch.json: not JSON .*delete it"):
        inspect_raw(toy(), tmp_path / "raw/toy")


def test_damaged_job_record_is_written_anew(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    fetch(toy(), tmp_path / "raw", policy=FAST)
    record = tmp_path / "raw/toy/fetch.json"
    written = record.read_bytes()
    record.write_text("{")
    fetch(toy(), tmp_path / "raw", policy=FAST)
    assert record.read_bytes() == written
