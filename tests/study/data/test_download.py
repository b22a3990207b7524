"""Network faults against a server on the loopback interface."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.download import NotServedError, Policy, download
from tests.study.data.loopback import Site, content, cut, in_turn, redirect, stall, status

BODY = bytes(range(256)) * 2000
FAST = Policy(attempts=3, backoff=0.01, stall=2.0)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_plain(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = content(BODY)
    download(f"{site.url}/f", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == BODY
    assert leftovers(tmp_path) == ["f"]


def test_404_is_final_and_named(site: Site, tmp_path: Path) -> None:
    with pytest.raises(NotServedError, match=r"/f: HTTP status 404"):
        download(f"{site.url}/f", tmp_path / "f", FAST)
    assert len(site.requests) == 1
    assert leftovers(tmp_path) == []


def test_500_then_success(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = in_turn(status(500), status(503), content(BODY))
    download(f"{site.url}/f", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == BODY
    assert len(site.requests) == 3


def test_500_for_ever(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = status(500)
    with pytest.raises(NotServedError, match=r"HTTP status 500.*gave up after 3 attempts"):
        download(f"{site.url}/f", tmp_path / "f", FAST)
    assert len(site.requests) == 3


def test_stalled_connection(site: Site, tmp_path: Path) -> None:
    release = threading.Event()
    site.answers["/f"] = stall(BODY, 1000, release)
    started = time.monotonic()
    try:
        with pytest.raises(NotServedError, match=r"no byte for 0.3 s \(stalled"):
            download(f"{site.url}/f", tmp_path / "f", Policy(2, 0.01, 0.3))
    finally:
        release.set()
    assert time.monotonic() - started < 10
    assert not (tmp_path / "f").exists()


def test_stall_then_success(site: Site, tmp_path: Path) -> None:
    release = threading.Event()
    site.answers["/f"] = in_turn(stall(BODY, 1000, release), content(BODY))
    try:
        download(f"{site.url}/f", tmp_path / "f", Policy(2, 0.01, 0.3))
    finally:
        release.set()
    assert (tmp_path / "f").read_bytes() == BODY


def test_cut_then_resumed(site: Site, tmp_path: Path) -> None:
    """The second connection asks for the rest only."""
    site.answers["/f"] = in_turn(cut(BODY, 300_000), content(BODY))
    download(f"{site.url}/f", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == BODY
    assert [request.range for request in site.requests] == [None, "bytes=300000-"]
    assert site.requests[1].if_range == '"v1"'


def test_resumed_by_a_later_call(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = cut(BODY, 300_000)
    with pytest.raises(NotServedError, match=r"cut after 300,000 of 512,000 bytes"):
        download(f"{site.url}/f", tmp_path / "f", Policy(1, 0.01, 2.0))
    assert not (tmp_path / "f").exists()
    site.answers["/f"] = content(BODY)
    download(f"{site.url}/f", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == BODY
    assert site.requests[-1].range == "bytes=300000-"


def test_changed_file_is_not_glued_to_the_old_half(site: Site, tmp_path: Path) -> None:
    other = BODY[::-1]
    site.answers["/f"] = in_turn(cut(BODY, 300_000), content(other, etag='"v2"'))
    download(f"{site.url}/f", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == other


def test_refused_range_starts_over(site: Site, tmp_path: Path) -> None:
    """Killed between the last byte and the rename: the rest that is asked for is empty."""
    (tmp_path / "f.part").write_bytes(BODY)
    note = {"url": f"{site.url}/f", "validator": '"v1"'}
    (tmp_path / "f.part.json").write_text(json.dumps(note))
    site.answers["/f"] = in_turn(status(416), content(BODY))
    download(f"{site.url}/f", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == BODY
    assert [request.range for request in site.requests] == [f"bytes={len(BODY)}-", None]


def test_server_without_ranges(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = in_turn(cut(BODY, 300_000), content(BODY, ranges=False))
    download(f"{site.url}/f", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == BODY


def test_server_without_version_marks_starts_again(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = in_turn(cut(BODY, 300_000, etag=""), content(BODY))
    download(f"{site.url}/f", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == BODY
    assert site.requests[1].range is None


def test_redirect(site: Site, tmp_path: Path) -> None:
    site.answers["/old"] = redirect("/new")
    site.answers["/new"] = content(BODY)
    download(f"{site.url}/old", tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == BODY


def test_redirect_loop_ends(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = redirect("/f")
    with pytest.raises(NotServedError, match=r"HTTP status 302"):
        download(f"{site.url}/f", tmp_path / "f", FAST)


def test_disk_full(site: Site, tmp_path: Path) -> None:
    """/dev/full fails every write with the kernel's own "no space left on device"."""
    site.answers["/f"] = content(BODY)
    (tmp_path / "f.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"f: the disk is full .*free some space"):
        download(f"{site.url}/f", tmp_path / "f", FAST)
    assert leftovers(tmp_path) == []
    assert len(site.requests) == 1


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(NotServedError, match=r"refused.*gave up after 2 attempts"):
        download("http://127.0.0.1:9/f", tmp_path / "f", FAST)
