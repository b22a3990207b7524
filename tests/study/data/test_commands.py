"""``pfrnn fetch``, ``prepare`` and ``datasets``: output and exit codes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import pfrnn.study.data.availability as asked
import pfrnn.study.data.sets.air as air
from pfrnn.study.cli import main
from pfrnn.study.data.base import Address, RawFile
from pfrnn.study.data.store import load_prepared
from tests.study.data.invented import air_bytes, write_raw

ROOT = Path(__file__).parents[3]
PARAMS = ["--params", str(ROOT / "params.yaml"), "--tier", "quick"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror that holds an invented AIR, whose digest the card accepts; nothing reachable."""
    write_raw("air", tmp_path / "mirror/air")
    digest = hashlib.sha256(air_bytes()).hexdigest()
    card = air.CARD._replace(
        files=(RawFile(air.FILE, (digest,)),), addresses=(Address("http://127.0.0.1:9/a.zip"),)
    )
    monkeypatch.setattr(air, "DATASET", air.DATASET._replace(card=card))
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setattr(asked, "_connects", lambda host, port: False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listing(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["datasets", "--json", *PARAMS]) == 0
    return {found["name"]: found for found in json.loads(capsys.readouterr().out)}


def test_fetch_prepare_list(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = listing(capsys)["air"]
    assert (found["state"], found["where"], found["rows"]) == ("whole", "mirror", 400)
    assert found["sequences"] is None

    assert main(["fetch", "air"]) == 0
    assert "air: whole, 1 files in data/raw/air" in capsys.readouterr().out
    assert main(["fetch", "air", "--check"]) == 0

    from pfrnn.study.config import load_config
    from pfrnn.study.data.base import protocol_digest
    from pfrnn.study.data.registry import protocol

    config = load_config(ROOT / "params.yaml", "quick")
    values = protocol("air", config.datasets.get("air", {}))
    folder = f"data/prepared/air-{protocol_digest('air', values, config.seed)}"
    assert main(["prepare", "air", "--out", folder, *PARAMS]) == 0
    assert "persistence: rmse" in capsys.readouterr().out

    found = listing(capsys)["air"]
    card = load_prepared(folder).card
    assert found["where"] == "disk"
    assert found["sequences"] == card.sequences
    assert found["digest"] == card.arrays_digest
    assert found["raw_bytes"] > 10_000
    assert found["prepared_bytes"] > 10_000
    assert main(["datasets", *PARAMS]) == 0
    shown = capsys.readouterr().out
    assert "benzene" in shown
    assert "Not to be passed on (see each licence): air, mr, nasdaq, r52" in shown


def test_missing_set(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (world / "mirror/air" / air.FILE).unlink()
    assert main(["fetch", "air"]) == 1
    error = capsys.readouterr().err
    assert "air: missing" in error
    assert "PFRNN_DATA_MIRROR" in error
    assert len(error.splitlines()) == 1  # a job's log ends with the whole reason
    assert main(["fetch", "air", "arem"]) == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1] == "pfrnn fetch: 2 data sets failed, see above"
    assert main(["fetch", "air", "--allow-missing"]) == 0
    assert main(["fetch", "air", "--check"]) == 1
    assert main(["prepare", "air", "--out", "out", *PARAMS]) == 1
    assert not (world / "out").exists()
    assert listing(capsys)["air"]["state"] == "missing"


def test_wrong_file_is_an_error_until_allowed(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = world / "mirror/air" / air.FILE
    path.write_bytes(path.read_bytes().replace(b"18.00.00;", b"18.00.00;9", 1))
    assert main(["fetch", "air", "--allow-missing"]) == 1
    assert "not the publisher's file" in capsys.readouterr().err
    assert not (world / "data/raw/air").exists()
    assert listing(capsys)["air"]["state"] == "refused"
    assert main(["fetch", "--allow-unverified", "air"]) == 0
    assert "air: unverified" in capsys.readouterr().out
    assert main(["prepare", "air", "--out", "out", *PARAMS]) == 0
    assert load_prepared("out").card.state == "unverified"


def test_wrong_usage(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch"]) == 2
    assert "give names, --tier T or --all" in capsys.readouterr().err
    assert main(["fetch", "aire"]) == 2
    assert "did you mean 'air'?" in capsys.readouterr().err
    assert main(["prepare", "aire", "--out", "x", *PARAMS]) == 2


def test_one_list_of_what_may_not_be_passed_on(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cards'; `datasets`, `publishable` and docs/versioning.md name the same sets."""
    from pfrnn.study.cli.publishable import restricted_sets

    listed = [name for name, found in listing(capsys).items() if not found["redistributable"]]
    assert restricted_sets() == listed == ["air", "mr", "nasdaq", "r52"]
    page = (ROOT / "docs" / "versioning.md").read_text(encoding="utf-8")
    assert f"pfrnn fetch {' '.join(listed)}" in page
    part = page.partition("**What may be public.**")[2].partition("```")[0]
    assert all(name.upper() in part for name in listed)


def test_publishable_needs_an_address(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (world / ".dvc").mkdir()
    (world / "dvc.yaml").write_text("stages: {}\n")
    for url in ("", "  "):
        assert main(["publishable", url]) == 2
        assert "URL: expected a folder or address" in capsys.readouterr().err
    assert not (world / ".dvcignore").exists()


@pytest.mark.parametrize("command", ["fetch", "prepare", "datasets"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert "Example:" in capsys.readouterr().out
