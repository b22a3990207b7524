from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pfrnn.study.data.sets
from pfrnn.study.data import download
from tests.study.data.loopback import Site, serve


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study's own sets (training tests add toys), no mirror, no proxy, no patience."""
    monkeypatch.setattr(
        pfrnn.study.data.sets, "__path__", [str(Path(pfrnn.study.data.sets.__file__).parent)]
    )
    monkeypatch.setattr(download, "BACKOFF", 0.01)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server on the loopback interface."""
    with serve() as served:
        yield served


@pytest.fixture
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mirror is set, whatever the surroundings say."""
    monkeypatch.delenv("PFRNN_DATA_MIRROR", raising=False)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy set's folder in a mirror that is set."""
    folder = tmp_path / "mirror" / "toy"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(folder.parent))
    return folder
