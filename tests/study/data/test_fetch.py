"""Fetching: mirror first, then addresses; atomic arrival, one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pfrnn.errors import ConfigError, MissingDataError
from pfrnn.study.data.base import Address
from pfrnn.study.data.download import Policy
from pfrnn.study.data.remote import fetch
from pfrnn.study.files import read_json
from tests.study.data.loopback import Site, content, cut, status
from tests.study.data.toy import BODY, FAST, OTHER, sha, toy, visible, zipped

pytestmark = pytest.mark.usefixtures("no_mirror")


def test_mirror_folder(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    state = fetch(toy(), tmp_path / "raw", policy=FAST)
    assert state.state == "whole"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY
    record = read_json(tmp_path / "raw/toy/.fetch.json")
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
    record = read_json(tmp_path / "raw/toy/.fetch.json")
    assert record["origin"] == {"toy.csv": site.url + "/toy.csv"}


def test_mirror_that_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"PFRNN_DATA_MIRROR=.*expected a folder or an http"):
        fetch(toy(), tmp_path / "raw", policy=FAST)


def test_second_address_when_the_first_fails(site: Site, tmp_path: Path) -> None:
    site.answers["/a/toy.csv"] = status(500)
    site.answers["/b/toy.csv"] = content(OTHER)
    site.answers["/c/toy.csv"] = content(BODY)
    addresses = [Address(f"{site.url}/{place}/toy.csv") for place in "abc"]
    assert fetch(toy(*addresses), tmp_path / "raw", policy=FAST).state == "whole"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY


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
from pfrnn.study.data.base import Address
from pfrnn.study.data.remote import fetch
from tests.study.data.toy import toy
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
