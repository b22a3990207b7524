"""Templates and the paper's table belong to the report's source."""

import pytest

from pfrnn.errors import RecordError
from pfrnn.reporting import assets


@pytest.mark.parametrize("name", assets.ASSETS)
def test_every_file_is_the_one_whose_digest_stands_in_the_source(name: str) -> None:
    assert assets.asset(name)


def test_another_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(assets.ASSETS, "style.css", ("templates", "0" * 16))
    with pytest.raises(RecordError, match=r"style\.css: digest .*assets\.py"):
        assets.asset("style.css")
