from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.data.loopback import Site, serve


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A web server on the loopback interface, reached without any proxy."""
    monkeypatch.setenv("no_proxy", "*")
    with serve() as served:
        yield served
