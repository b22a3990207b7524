"""Fetching: mirror first, addresses in order, verification, atomic arrival, one at a time."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfrnn.data.archives import extract_member
from pfrnn.data.base import Address, Arrays, Card, Dataset, Protocol, RawFile
from pfrnn.data.digests import arrays_digest, is_accepted
from pfrnn.data.download import Policy
from pfrnn.data.rawstate import inspect_raw
from pfrnn.data.remote import fetch
from pfrnn.data.tables import read_table, to_numbers
from pfrnn.errors import ConfigError, DataError, MissingDataError
from pfrnn.files import read_json
from tests.data.loopback import Site, content, cut, status

FAST = Policy(attempts=2, backoff=0.01, stall=2.0)
BODY = b"a,b\r\n" + b"".join(b"%d,%d\r\n" % (i, i * i) for i in range(2000))
OTHER = BODY.replace(b"5,25\r\n", b"5,26\r\n", 1)


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def read(folder: Path) -> Mapping[str, Any]:
    table = read_table(folder / "toy.csv", ("a", "b"), ",")
    return {name: to_numbers(table, name) for name in ("a", "b")}


def never(folder: Path, protocol: Any, seed: int) -> Arrays:
    raise NotImplementedError


def toy(*addresses: Address, digests: tuple[str, ...] = (sha(BODY),), **card: Any) -> Dataset:
    """A data set of one file, ``toy.csv``."""
    files = card.pop("files", (RawFile("toy.csv", digests),))
    text = dict.fromkeys(("title", "origin", "citation", "licence", "target", "unit"), "invented")
    facts = {"task": "regression", "redistributable": True, "rows": 2000, "metric": "rmse"}
    made = Card(name="toy", files=files, addresses=addresses, **{**text, **facts, **card})
    return Dataset(made, Protocol, never, read)


@pytest.fixture(autouse=True)
def _no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PFRNN_DATA_MIRROR", raising=False)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mirror" / "toy"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(folder.parent))
    return folder


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return buffer.getvalue()


def visible(raw: Path) -> list[str]:
    """Files that a reader of the raw folder sees."""
    return sorted(str(p.relative_to(raw / "toy")) for p in (raw / "toy").rglob("*") if p.is_file())


# --- mirror ---------------------------------------------------------------------------------


def test_mirror_folder(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    state = fetch(toy(), tmp_path / "raw", policy=FAST)
    assert state.state == "whole"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY
    record = read_json(tmp_path / "raw/toy/fetch.json")
    assert record["origin"] == {"toy.csv": "mirror"}
    assert record["sha256"] == {"toy.csv": sha(BODY)}
    assert str(mirror) not in (tmp_path / "raw/toy/fetch.json").read_text()


@pytest.mark.parametrize("archive", ["toy.zip", "set+of+toys.zip"])
def test_mirror_zip_of_the_publisher(mirror: Path, tmp_path: Path, archive: str) -> None:
    (mirror / archive).write_bytes(zipped(**{"toy.csv": BODY}))
    address = Address("http://127.0.0.1:9/set+of+toys.zip", {"toy.csv": "toy.csv"})
    assert fetch(toy(address), tmp_path / "raw", policy=FAST).state == "whole"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY


def test_mirror_url(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFRNN_DATA_MIRROR", site.url + "/base/")
    site.answers["/base/toy/toy.csv"] = content(BODY)
    assert fetch(toy(), tmp_path / "raw", policy=FAST).state == "whole"
    assert visible(tmp_path / "raw") == ["fetch.json", "toy.csv"]


def test_mirror_url_with_zip_and_partial(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PFRNN_DATA_MIRROR", site.url)
    site.answers["/toy/toy.zip"] = content(zipped(**{"toy.csv": OTHER}))
    site.answers["/toy/PARTIAL.md"] = content(b"Excerpt: half\nof it.\n")
    state = fetch(toy(), tmp_path / "raw", policy=FAST)
    assert (state.state, state.note) == ("excerpt", "Excerpt: half of it.")


def test_mirror_comes_before_the_addresses(site: Site, mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    site.answers["/toy.csv"] = content(BODY)
    fetch(toy(Address(site.url + "/toy.csv")), tmp_path / "raw", policy=FAST)
    assert site.requests == []


def test_set_missing_in_the_mirror_comes_from_its_address(
    site: Site, mirror: Path, tmp_path: Path
) -> None:
    site.answers["/toy.csv"] = content(BODY)
    fetch(toy(Address(site.url + "/toy.csv")), tmp_path / "raw", policy=FAST)
    record = read_json(tmp_path / "raw/toy/fetch.json")
    assert record["origin"] == {"toy.csv": site.url + "/toy.csv"}


def test_mirror_that_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"PFRNN_DATA_MIRROR=.*expected a folder or an http"):
        fetch(toy(), tmp_path / "raw", policy=FAST)


# --- addresses and archives -----------------------------------------------------------------


def test_second_address_when_the_first_fails(site: Site, tmp_path: Path) -> None:
    site.answers["/a/toy.csv"] = status(500)
    site.answers["/b/toy.csv"] = content(OTHER)
    site.answers["/c/toy.csv"] = content(BODY)
    addresses = [Address(f"{site.url}/{place}/toy.csv") for place in "abc"]
    assert fetch(toy(*addresses), tmp_path / "raw", policy=FAST).state == "whole"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY


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


# --- verification ---------------------------------------------------------------------------


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


# --- interruption and company ---------------------------------------------------------------


def test_cut_transfer_leaves_no_file_and_is_resumed(site: Site, tmp_path: Path) -> None:
    site.answers["/toy.csv"] = cut(BODY, 5000)
    dataset = toy(Address(site.url + "/toy.csv"))
    with pytest.raises(MissingDataError, match="connection cut"):
        fetch(dataset, tmp_path / "raw", policy=Policy(1, 0.01, 2.0))
    assert visible(tmp_path / "raw") == []
    site.answers["/toy.csv"] = content(BODY)
    fetch(dataset, tmp_path / "raw", policy=FAST)
    assert site.requests[-1].range == "bytes=5000-"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY


TWO = """
import sys
from pathlib import Path
sys.path.insert(0, ".")
from pfrnn.data.base import Address
from pfrnn.data.remote import fetch
from tests.data.test_fetch import toy
print(fetch(toy(Address(sys.argv[1])), Path(sys.argv[2])).state)
"""


def test_two_processes_at_once(site: Site, tmp_path: Path) -> None:
    """Both end with the whole file, and the second finds what the first has brought."""
    site.answers["/toy.csv"] = content(BODY)
    command = [sys.executable, "-c", TWO, site.url + "/toy.csv", str(tmp_path / "raw")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in running] == ["whole\n"] * 2
    assert len(site.requests) == 1
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY
    assert visible(tmp_path / "raw") == ["fetch.json", "toy.csv"]


def test_nothing_is_asked_when_the_files_are_there(site: Site, tmp_path: Path) -> None:
    site.answers["/toy.csv"] = content(BODY)
    dataset = toy(Address(site.url + "/toy.csv"))
    fetch(dataset, tmp_path / "raw", policy=FAST)
    written = (tmp_path / "raw/toy/fetch.json").stat().st_mtime_ns
    fetch(dataset, tmp_path / "raw", policy=FAST)
    assert len(site.requests) == 1
    assert (tmp_path / "raw/toy/fetch.json").stat().st_mtime_ns == written
