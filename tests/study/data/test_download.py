"""Downloads against a server on the loopback interface, and members of archives."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from pfrnn.errors import DataError
from pfrnn.study.data import download as module
from pfrnn.study.data.download import NotServedError, download, extract_member
from tests.study.data.loopback import Site, content, cut, in_turn, redirect, stall, status
from tests.study.data.toy import zipped

BODY = bytes(range(256)) * 2000


def test_a_file_through_a_redirect(site: Site, tmp_path: Path) -> None:
    site.answers |= {"/old": redirect("/f"), "/f": content(BODY)}
    download(f"{site.url}/old", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize(("code", "absent"), [(403, True), (404, True), (400, False)])
def test_a_final_status_is_named_and_not_tried_again(
    code: int, absent: bool, site: Site, tmp_path: Path
) -> None:
    site.answers["/f"] = status(code)
    with pytest.raises(NotServedError, match=f"/f: HTTP status {code}") as caught:
        download(f"{site.url}/f", tmp_path / "f")
    assert caught.value.absent is absent
    assert len(site.requests) == 1


def test_temporary_faults_are_tried_again(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = in_turn(status(500), status(503), content(BODY))
    download(f"{site.url}/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    site.answers["/g"] = status(500)
    with pytest.raises(NotServedError, match=r"HTTP status 500.*gave up after 4 attempts"):
        download(f"{site.url}/g", tmp_path / "g")


def test_a_stalled_connection_is_dropped(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL", 0.3)
    release = threading.Event()
    site.answers["/f"] = in_turn(stall(BODY, 1000, release), content(BODY))
    try:
        download(f"{site.url}/f", tmp_path / "f")
    finally:
        release.set()
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_cut_transfer_is_continued_also_by_a_later_call(site: Site, tmp_path: Path) -> None:
    site.answers["/f"] = cut(BODY, 300_000)
    with pytest.raises(NotServedError, match=r"cut after 300,000 of 512,000 bytes"):
        download(f"{site.url}/f", tmp_path / "f")
    assert not (tmp_path / "f").exists()
    site.answers["/f"] = content(BODY)
    download(f"{site.url}/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert (site.requests[-1].range, site.requests[-1].if_range) == ("bytes=300000-", '"v1"')


@pytest.mark.parametrize(
    "second", [content(BODY[::-1], etag='"v2"'), content(BODY[::-1], ranges=False)]
)
def test_another_version_is_not_appended_to_the_old_half(
    second: module.Any, site: Site, tmp_path: Path
) -> None:
    site.answers["/f"] = in_turn(cut(BODY, 300_000), second)
    download(f"{site.url}/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY[::-1]


def test_a_refused_range_starts_over(site: Site, tmp_path: Path) -> None:
    """Killed between the last byte and the rename: the rest that is asked for is empty."""
    (tmp_path / "f.part").write_bytes(BODY)
    (tmp_path / "f.part.json").write_text(f'{{"url": "{site.url}/f", "version": "\\"v1\\""}}')
    site.answers["/f"] = in_turn(status(416), content(BODY))
    download(f"{site.url}/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert [request.range for request in site.requests] == [f"bytes={len(BODY)}-", None]


def test_disk_full_and_nobody_listening_are_named(site: Site, tmp_path: Path) -> None:
    """/dev/full fails every write with the kernel's own "no space left on device"."""
    site.answers["/f"] = content(BODY)
    (tmp_path / "f.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"cannot be written: .*No space left"):
        download(f"{site.url}/f", tmp_path / "f")
    with pytest.raises(NotServedError, match="refused"):
        download("http://127.0.0.1:9/f", tmp_path / "f")


def test_a_wheel_comes_through_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        if command[-1] == "toy==1.0":
            folder = Path(command[command.index("--dest") + 1])
            (folder / "toy-1.0-py3-none-any.whl").write_bytes(b"a wheel")
            return subprocess.CompletedProcess(command, 0, "", "")
        return subprocess.CompletedProcess(command, 1, "", "hint\nERROR: no such version")

    monkeypatch.setattr(subprocess, "run", pip)
    download("pypi:toy==1.0", tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == b"a wheel"
    with pytest.raises(NotServedError, match="ERROR: no such version"):
        download("pypi:toy==2.0", tmp_path / "w")


def tarred(name: str, body: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(body)
        archive.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("archive", "member"),
    [
        (zipped(**{"f.csv": BODY}), "f.csv"),
        (zipped(**{"folder/f.csv": BODY, "folder/other/of.csv": b""}), "f.csv"),
        (zipped(**{"in.zip": zipped(**{"f.csv": BODY})}), "in.zip!f.csv"),
        (zipped(**{"in.tar": tarred("f.csv", BODY)}), "in.tar!f.csv"),
        (tarred("folder/f.csv", BODY), "folder/f.csv"),
        (tarred("../../f.csv", BODY), "f.csv"),
    ],
)
def test_a_member_goes_to_the_target_only(archive: bytes, member: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/archive").write_bytes(archive)
    extract_member(tmp_path / "a/archive", member, tmp_path / "a/target")
    assert (tmp_path / "a/target").read_bytes() == BODY
    assert not (tmp_path / "f.csv").exists()


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (b"<!doctype html>", "not an archive"),
        (zipped(**{"f.csv": BODY})[:-40], "not an archive, or damaged"),
        (zipped(other=BODY), "has no member 'f.csv'; it holds other"),
    ],
)
def test_a_bad_archive_is_named(archive: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(archive)
    with pytest.raises(DataError, match=said):
        extract_member(tmp_path / "archive", "f.csv", tmp_path / "target")
    assert not (tmp_path / "target").exists()
