"""Where a set would come from, asked in seconds, without reading or downloading anything."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pfrnn.study.data.availability as asked
from pfrnn.study.data.availability import availability
from pfrnn.study.data.base import Address
from pfrnn.study.data.registry import dataset
from tests.study.data.invented import write_raw
from tests.study.data.loopback import Site, content


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PFRNN_DATA_MIRROR", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    asked._connects.cache_clear()
    asked._serves.cache_clear()


def use_addresses(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    air = dataset("air")
    card = air.card._replace(addresses=tuple(Address(url) for url in urls))
    monkeypatch.setattr(asked, "dataset", lambda name: air._replace(card=card))


def test_simulated_sets_are_always_there(tmp_path: Path) -> None:
    assert availability("maze10", tmp_path).where == "simulated"


def test_on_disk(tmp_path: Path) -> None:
    write_raw("air", tmp_path / "air")
    assert availability("air", tmp_path).where == "disk"


def test_mirror_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw("air", tmp_path / "mirror/air")
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(tmp_path / "mirror"))
    assert availability("air", tmp_path / "raw").where == "mirror"


def test_mirror_url(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFRNN_DATA_MIRROR", site.url)
    use_addresses(monkeypatch)
    assert availability("air", tmp_path).where == "missing"
    asked._serves.cache_clear()
    site.answers["/air/AirQualityUCI.csv"] = content(b"x")
    assert availability("air", tmp_path).where == "mirror"


def test_reachable_address(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_addresses(monkeypatch, f"{site.url}/air.zip")
    found = availability("air", tmp_path)
    assert (found.where, found.available) == ("address", True)
    assert site.requests == []


def test_missing_says_why_and_both_cures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_addresses(monkeypatch, "http://127.0.0.1:9/air.zip")
    found = availability("air", tmp_path)
    assert (found.where, found.available) == ("missing", False)
    for part in ("PFRNN_DATA_MIRROR is not set", "no connection to 127.0.0.1", "AirQualityUCI.csv"):
        assert part in found.reason
    assert str(tmp_path / "air") in found.reason


def test_a_dead_host_costs_three_seconds_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name resolution that hangs is cut off, and a host is asked once a process."""
    calls: list[object] = []

    def hang(*arguments: object, **options: object) -> socket.socket:
        calls.append(arguments)
        time.sleep(30)
        raise OSError

    monkeypatch.setattr(asked.socket, "create_connection", hang)
    monkeypatch.setattr(asked, "TIMEOUT", 0.2)
    use_addresses(monkeypatch, "http://dead.invalid/a.zip", "http://dead.invalid/b.zip")
    started = time.monotonic()
    assert availability("air", tmp_path).where == "missing"
    assert availability("air", tmp_path).where == "missing"
    assert time.monotonic() - started < 3
    assert len(calls) == 1


def test_importing_it_is_light() -> None:
    """The workflow imports this, and every set, each time it starts."""
    code = (
        "import sys, pfrnn.study.data.availability; from pfrnn.study.data.registry import *;"
        "[dataset(n) for n in dataset_names()];"
        "print(sorted({'torch', 'pandas', 'sklearn', 'scipy', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
