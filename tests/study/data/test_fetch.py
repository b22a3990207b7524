"""Fetching: own folder, mirror, addresses; atomic arrival; what the files are found to be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pfrnn.errors import ConfigError, DataError, MissingDataError
from pfrnn.study.data.base import Address, Protocol, RawFile
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.fetch import fetch
from pfrnn.study.data.prepare import make_prepared
from pfrnn.study.data.state import check_untouched, inspect_raw
from pfrnn.study.files import read_json
from tests.study.data.loopback import Site, content, cut, status
from tests.study.data.toy import BODY, OTHER, read, sha, toy, visible, zipped

pytestmark = pytest.mark.usefixtures("no_mirror")


def test_mirror_folder(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    assert fetch(toy(), tmp_path / "raw").state == "whole"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY
    assert read_json(tmp_path / "raw/toy/.fetch.json")["origin"] == {"toy.csv": "mirror"}
    assert read_json(tmp_path / "raw/toy/fetch.json")["sha256"] == {"toy.csv": sha(BODY)}
    assert str(mirror) not in (tmp_path / "raw/toy/fetch.json").read_text()


@pytest.mark.parametrize("archive", ["toy.zip", "set+of+toys.zip", "set of toys.zip"])
@pytest.mark.parametrize("place", ["mirror/toy", "raw/toy"])
def test_the_publishers_zip_will_do(place: str, archive: str, mirror: Path, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / archive).write_bytes(zipped(**{"toy.csv": BODY}))
    address = Address("http://127.0.0.1:9/set+of+toys.zip", {"toy.csv": "toy.csv"})
    assert fetch(toy(address), tmp_path / "raw").state == "whole"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY


def test_an_unzipped_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "raw/toy/AReM").mkdir(parents=True)
    (tmp_path / "raw/toy/AReM/toy.csv").write_bytes(BODY)
    assert fetch(toy(), tmp_path / "raw").state == "whole"
    origin = read_json(tmp_path / "raw/toy/.fetch.json")["origin"]
    assert origin == {"toy.csv": "put there by the user"}


def test_mirror_url(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFRNN_DATA_MIRROR", site.url + "/base/")
    site.answers["/base/toy/toy.csv"] = content(BODY)
    assert fetch(toy(), tmp_path / "raw").state == "whole"
    assert visible(tmp_path / "raw") == ["fetch.json", "toy.csv"]


@pytest.mark.parametrize("absent", [403, 404])
def test_mirror_url_with_zip_and_partial(
    absent: int, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Object stores answer 403 for what they don't have."""
    monkeypatch.setenv("PFRNN_DATA_MIRROR", site.url)
    site.answers["/toy/toy.csv"] = status(absent)
    site.answers["/toy/toy.zip"] = content(zipped(**{"toy.csv": OTHER}))
    site.answers["/toy/PARTIAL.md"] = content(b"Excerpt: half\nof it.\n")
    state = fetch(toy(), tmp_path / "raw")
    assert (state.state, state.note) == ("excerpt", "Excerpt: half of it.")


def test_a_web_page_for_partial_makes_no_excerpt(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PFRNN_DATA_MIRROR", site.url)
    site.answers["/toy/toy.csv"] = content(OTHER)
    site.answers["/toy/PARTIAL.md"] = content(b"<!doctype html><p>Not found")
    with pytest.raises(DataError, match="not the publisher's file"):
        fetch(toy(), tmp_path / "raw")


def test_sources_in_turn(site: Site, mirror: Path, tmp_path: Path) -> None:
    """The mirror first, then each address until the files pass."""
    site.answers["/a/toy.csv"] = status(500)
    site.answers["/b/toy.csv"] = content(OTHER)
    site.answers["/c/toy.csv"] = content(BODY)
    addresses = [Address(f"{site.url}/{place}/toy.csv") for place in "abc"]
    assert fetch(toy(*addresses), tmp_path / "raw").state == "whole"
    origin = read_json(tmp_path / "raw/toy/.fetch.json")["origin"]
    assert origin == {"toy.csv": f"{site.url}/c/toy.csv"}
    asked = len(site.requests)
    (mirror / "toy.csv").write_bytes(BODY)
    fetch(toy(*addresses), tmp_path / "other")
    fetch(toy(*addresses), tmp_path / "other")
    assert len(site.requests) == asked


def test_each_refusal_names_its_source(site: Site, mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(OTHER)
    site.answers["/all.zip"] = content(zipped(**{"data/toy.csv": BODY.replace(b"7,49", b"7,")}))
    with pytest.raises(DataError) as caught:
        fetch(toy(Address(site.url + "/all.zip", {"toy.csv": "toy.csv"})), tmp_path / "raw")
    message = str(caught.value)
    assert f"{mirror}: toy.csv: not the publisher's file" in message
    assert f"{site.url}/all.zip: toy.csv: line 9, column 'b'" in message
    assert [path.name for path in (tmp_path / "raw").iterdir()] == [".toy.lock"]


def test_missing_says_why_and_the_two_cures(site: Site, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        fetch(toy(Address(site.url + "/toy.csv")), tmp_path / "raw")
    for part in ("HTTP status 404", "PFRNN_DATA_MIRROR", str(tmp_path / "raw/toy"), "toy.csv"):
        assert part in str(caught.value)


def test_mirror_that_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"PFRNN_DATA_MIRROR=.*expected a folder or an http"):
        fetch(toy(), tmp_path / "raw")


def test_cut_transfer_leaves_no_file_and_is_continued(site: Site, tmp_path: Path) -> None:
    site.answers["/toy.csv"] = cut(BODY, 5000)
    dataset = toy(Address(site.url + "/toy.csv"))
    with pytest.raises(MissingDataError, match="connection cut"):
        fetch(dataset, tmp_path / "raw")
    assert visible(tmp_path / "raw") == []
    site.answers["/toy.csv"] = content(BODY)
    fetch(dataset, tmp_path / "raw")
    assert site.requests[-1].range == "bytes=5000-"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY


TWO = """
import sys
from pathlib import Path
sys.path.insert(0, ".")
from pfrnn.study.data.base import Address
from pfrnn.study.data.fetch import fetch
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
    assert visible(tmp_path / "raw") == ["fetch.json", "toy.csv"]


def test_the_record_says_what_the_files_are_not_where_from(
    site: Site, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs depend on fetch.json by content: the same file from elsewhere must replan nothing."""
    body = zipped(**{"toy.csv": BODY})
    site.answers |= {"/toy.csv": content(BODY), "/all.zip": content(body)}
    known = Address(site.url + "/all.zip", {"toy.csv": "toy.csv"}, (sha(body),))
    records = set()
    for place, address in {"file": Address(site.url + "/toy.csv"), "zip": known}.items():
        fetch(toy(address), tmp_path / place)
        records.add((tmp_path / place / "toy/fetch.json").read_bytes())
    (mirror / "toy.csv").write_bytes(BODY)
    fetch(toy(), tmp_path / "mirrored")
    records.add((tmp_path / "mirrored/toy/fetch.json").read_bytes())
    assert len(records) == 1


def test_a_known_archive_vouches_for_its_files(site: Site, tmp_path: Path) -> None:
    body = zipped(**{"toy.csv": OTHER})
    site.answers["/all.zip"] = content(body)
    address = Address(site.url + "/all.zip", {"toy.csv": "toy.csv"}, (sha(body),))
    assert fetch(toy(address), tmp_path / "raw").state == "whole"
    (tmp_path / "raw/toy/fetch.json").unlink()  # as a workflow engine does before it fetches again
    assert fetch(toy(address), tmp_path / "raw").state == "whole"
    assert inspect_raw(toy(address), tmp_path / "raw/toy").state == "whole"


def test_table_digest_decides_where_only_bytes_differ(mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "toy.csv").write_bytes(BODY)
    dataset = toy(tables=(arrays_digest(read(tmp_path)),))
    (mirror / "toy.csv").write_bytes(BODY.replace(b"\r\n", b"\n"))
    state = fetch(dataset, tmp_path / "raw")
    assert state.state == "whole"
    assert "bytes of toy.csv differ" in state.note


def test_allowed_by_name_is_unverified_ever_after(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(OTHER)
    with pytest.raises(DataError, match="`pfrnn fetch toy --allow-unverified toy`"):
        fetch(toy(), tmp_path / "raw")
    assert fetch(toy(), tmp_path / "raw", allow_unverified=True).state == "unverified"
    (tmp_path / "raw/toy/fetch.json").unlink()
    assert fetch(toy(), tmp_path / "raw").state == "unverified"
    (tmp_path / "raw/toy/toy.csv").write_bytes(OTHER + b"9,9\r\n")
    with pytest.raises(DataError, match="not the publisher's file"):
        inspect_raw(toy(), tmp_path / "raw/toy")


def test_what_cannot_be_read_is_not_offered_to_be_allowed(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY.replace(b"7,49", b"7,"))
    for allowed in (False, True):
        with pytest.raises(DataError, match="line 9, column 'b'") as caught:
            fetch(toy(), tmp_path / "raw", allow_unverified=allowed)
        assert "allow-unverified" not in str(caught.value)


def test_excerpts(tmp_path: Path) -> None:
    """PARTIAL.md makes one where none is known; else the table's digest decides."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "toy.csv").write_bytes(OTHER)
    known: dict[str, Any] = {"excerpts": (arrays_digest(read(folder)),)}
    assert inspect_raw(toy(**known), folder).state == "excerpt"
    (folder / "PARTIAL.md").write_text("Excerpt:\na part.\n")
    for facts in ({}, known):
        state = inspect_raw(toy(**facts), folder)
        assert (state.state, state.note) == ("excerpt", "Excerpt: a part.")
    (folder / "toy.csv").write_bytes(OTHER.replace(b"3,9", b"9,3"))
    with pytest.raises(DataError, match="not the publisher's file"):
        inspect_raw(toy(**known), folder)
    (folder / "toy.csv").write_bytes(BODY)
    assert inspect_raw(toy(**known), folder).state == "whole"


def test_a_set_of_ones_own_needs_no_digest_and_no_address(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/toy.csv").write_bytes(BODY)
    state = fetch(toy(digests=()), tmp_path)
    assert (state.state, state.note) == (
        "unverified",
        "The data set names no digest to compare with.",
    )


def test_what_was_changed_after_it_was_fetched_is_not_prepared(
    mirror: Path, tmp_path: Path
) -> None:
    (mirror / "PARTIAL.md").write_text("Excerpt.\n")
    (mirror / "toy.csv").write_bytes(OTHER)
    fetch(toy(), tmp_path)
    (tmp_path / "toy/toy.csv").write_bytes(BODY)
    words = rf"toy\.csv: changed since it was fetched: sha256 {sha(BODY)}, .* has {sha(OTHER)}"
    check_untouched(toy().card, tmp_path / "other")  # nothing is fetched yet
    for check in (
        lambda: make_prepared(toy(), Protocol(), 0, tmp_path),
        lambda: check_untouched(toy().card, tmp_path / "toy"),
    ):
        with pytest.raises(DataError, match=words):
            check()
    # As it says: checked and recorded again, it goes on to the set's own code.
    assert fetch(toy(), tmp_path).state == "whole"
    with pytest.raises(NotImplementedError):
        make_prepared(toy(), Protocol(), 0, tmp_path)


def test_users_own_file_is_not_overwritten(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    folder = tmp_path / "raw/toy"
    folder.mkdir(parents=True)
    (folder / "toy.csv").write_bytes(OTHER)
    with pytest.raises(DataError, match=r"Delete it, put .* and run `pfrnn fetch toy`"):
        fetch(toy(), tmp_path / "raw")
    assert (folder / "toy.csv").read_bytes() == OTHER


def test_optional_file_may_be_missing(mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    files = (RawFile("toy.csv", (sha(BODY),)), RawFile("more.csv", ("0" * 64,), optional=True))
    assert set(fetch(toy(files=files), tmp_path / "raw").sha256) == {"toy.csv"}


@pytest.mark.parametrize("name", ["fetch.json", ".fetch.json"])
def test_damaged_record_is_named(name: str, mirror: Path, tmp_path: Path) -> None:
    (mirror / "toy.csv").write_bytes(BODY)
    fetch(toy(), tmp_path)
    (tmp_path / "toy" / name).write_text("{")
    with pytest.raises(DataError, match=rf"{re.escape(name)}: not JSON .*delete it"):
        fetch(toy(), tmp_path)
