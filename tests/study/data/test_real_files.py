"""The real files of the mirror: digests, known counts, traps, levels, and damaged copies."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.cli import main
from pfrnn.study.data.audit import leaks
from pfrnn.study.data.base import Prepared
from pfrnn.study.data.controls import persistence, regression_scores
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.inventory import entry
from pfrnn.study.data.prepare import make_prepared
from pfrnn.study.data.rawstate import inspect_raw
from pfrnn.study.data.registry import dataset, protocol
from pfrnn.study.data.remote import fetch
from pfrnn.study.data.scaling import carry_forward
from pfrnn.study.data.sets import aep, air, arem, nasdaq, pm
from tests.study.data.test_damage import CASES, DAMAGE, SEPARATOR, swap_rows

pytestmark = [
    pytest.mark.mirror,
    pytest.mark.skipif(
        not os.environ.get("PFRNN_DATA_MIRROR"),
        reason="the real raw files are needed: set PFRNN_DATA_MIRROR",
    ),
]
NAMES = ("aep", "air", "arem", "nasdaq", "pm")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw folders of this file's sets, fetched from the mirror."""
    folder = tmp_path_factory.mktemp("raw")
    for name in NAMES:
        fetch(dataset(name), folder)
    return folder


@pytest.fixture(scope="module")
def prepared(raw: Path) -> Callable[..., Prepared]:
    made: dict[str, Prepared] = {}

    def get(name: str) -> Prepared:
        if name not in made:
            made[name] = make_prepared(dataset(name), protocol(name, {}), 2020, raw)
        return made[name]

    return get


@pytest.mark.parametrize(
    ("name", "state", "rows"),
    [
        ("aep", "whole", 19735),
        ("air", "whole", 9357),
        ("arem", "whole", 42239),
        ("nasdaq", "excerpt", 4517),
        ("pm", "whole", 43824),
    ],
)
def test_state_and_rows(name: str, state: str, rows: int, raw: Path) -> None:
    found = entry(name, raw)
    assert (found.state, found.rows) == (state, rows)
    if state == "whole":
        assert found.rows_whole == rows
        assert arrays_digest(dataset(name).read(raw / name)) in dataset(name).card.tables  # type: ignore[misc]


def test_the_list_is_that_of_the_mirrors_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Three simulated, seven whole, three excerpts, with the page's row counts."""
    params = str(Path(__file__).parents[3] / "params.yaml")
    assert main(["datasets", "--json", "--raw-dir", str(tmp_path), "--params", params]) == 0
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    states = Counter(entry["state"] for entry in found.values())
    assert states == {"simulated": 3, "whole": 7, "excerpt": 3}
    page = Path(os.environ["PFRNN_DATA_MIRROR"], "README.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in row.split("|")] for row in page.splitlines() if "|" in row]
    listed = {cells[2]: cells for cells in lines if cells[2] in found}
    assert len(listed) == 10
    for name, cells in listed.items():
        assert cells[3].startswith(found[name]["state"])
        counts = re.split(" x | of ", cells[5])[0].replace(",", "").split(" + ")
        assert found[name]["rows"] == sum(map(int, counts))


@pytest.mark.parametrize("name", NAMES)
def test_leakage_audit(name: str, prepared: Callable[..., Prepared]) -> None:
    assert leaks(prepared(name).splits) == []


@pytest.mark.parametrize("name", NAMES)
def test_models_have_something_to_win(name: str, prepared: Callable[..., Prepared]) -> None:
    """A simple fitted control beats the dumb one, so learning is possible."""
    controls = prepared(name).card.controls
    if name == "arem":
        assert controls["logistic_regression"]["accuracy"] > 3 * controls["majority"]["accuracy"]
        return
    fitted = "linear_changes" if name == "nasdaq" else "linear_autoregression"
    assert controls[fitted]["rmse"] < controls["persistence"]["rmse"]
    assert controls["persistence"]["rmse"] < controls["seasonal_persistence"]["rmse"]


def whole_persistence(values: np.ndarray, kept: slice = slice(None)) -> dict[str, float]:
    """Persistence over a whole series, where the target was observed."""
    observed = ~np.isnan(values)
    past = carry_forward(values[:, None], observed[:, None], np.array([np.nan]))[:, 0]
    rows = np.arange(len(values) - 1)[kept]
    mask = observed[rows + 1] & ~np.isnan(past[rows])
    predicted = persistence(past, rows)
    return regression_scores(predicted, values[rows + 1][:, None], mask)


def test_persistence_on_pm(raw: Path) -> None:
    """24.2 where this hour and the hour before were measured; 24.5 with gaps carried forward."""
    values = np.asarray(pm.read(raw / "pm")["pm2.5"])
    change = np.diff(values)
    change = change[~np.isnan(change)]
    assert np.sqrt(np.mean(change**2)) == pytest.approx(24.2, abs=0.05)
    assert np.abs(change).mean() == pytest.approx(12.9, abs=0.05)
    assert whole_persistence(values)["rmse"] == pytest.approx(24.52, abs=0.01)
    last = slice(round(0.8 * len(values)), None)
    assert whole_persistence(values, last)["rmse"] == pytest.approx(22.1, abs=0.1)
    last = slice(round(0.85 * len(values)), None)
    assert whole_persistence(values, last)["rmse"] == pytest.approx(20.2, abs=0.05)
    change = np.diff(values)[last]
    assert np.sqrt(np.nanmean(change**2)) == pytest.approx(20.1, abs=0.05)


def test_persistence_on_air(raw: Path) -> None:
    values = np.asarray(air.read(raw / "air")["C6H6(GT)"])
    assert whole_persistence(values)["mse"] == pytest.approx(17.96, abs=0.01)
    wrong = np.where(np.isnan(values), -200.0, values)  # the missing code left in as a value
    assert whole_persistence(wrong)["rmse"] == pytest.approx(13.2, abs=0.1)


def test_persistence_on_aep(raw: Path) -> None:
    scores = whole_persistence(np.asarray(aep.read(raw / "aep")["Appliances"]))
    assert scores["rmse"] == pytest.approx(72.0, abs=0.1)
    assert scores["mae"] == pytest.approx(29.6, abs=0.1)


def test_air_missing_codes(raw: Path) -> None:
    table = air.read(raw / "air")
    missing = {name: int(np.isnan(table[name]).sum()) for name in air.MEASURED}
    known = {"CO(GT)": 1683, "NMHC(GT)": 8443, "NOx(GT)": 1639, "NO2(GT)": 1642}
    assert missing == {name: known.get(name, 366) for name in air.MEASURED}


def test_pm_missing_and_winds(raw: Path) -> None:
    table = pm.read(raw / "pm")
    missing = np.isnan(table["pm2.5"])
    assert missing.sum() == 2067
    assert missing[:24].all()
    names, counts = np.unique(table["cbwd"], return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    assert found == {"SE": 15290, "NW": 14150, "cv": 9387, "NE": 4997}


def test_aep_values(raw: Path) -> None:
    table = aep.read(raw / "aep")
    target = table["Appliances"]
    assert (target.min(), target.max()) == (10, 1080)
    assert target.mean() == pytest.approx(97.69, abs=0.01)
    assert (target % 10 == 0).all()
    assert (table["rv1"] == table["rv2"]).all()
    steps = aep.author_test_steps(raw / "aep")
    assert len(steps) == 4932
    assert np.isin(steps, table["step"]).all()


def test_arem_copies(raw: Path) -> None:
    recordings = arem.read_recordings(raw / "arem")
    assert len(recordings) == 88
    kept, dropped = arem.distinct(recordings)
    copies = {"cycling": (15,), "lying": (10, 11, 12, 13, 14, 15)}
    expected = [f"{name}/dataset{k}.csv" for name, numbers in copies.items() for k in numbers]
    assert dropped == expected
    assert len(kept) == 81
    by_name = {recording.name: recording for recording in recordings}
    one, ten = by_name["lying/dataset1.csv"], by_name["lying/dataset10.csv"]
    assert (one.values != ten.values).any(axis=1).sum() == 1  # the seventh copy is nearly one
    assert len(by_name["sitting/dataset8.csv"].time) == 479


def test_arem_test_set_is_large_enough(prepared: Callable[..., Prepared]) -> None:
    """Printed 99.1, 98.4 and 97.2 % need at least 565 items."""
    assert prepared("arem").card.sequences["test"] >= 565


def edit_copy(raw: Path, name: str, file: str, target: Path, change: Any) -> Path:
    shutil.copytree(raw / name, target / name)
    path = target / name / file
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))
    (target / name / "fetch.json").unlink(missing_ok=True)
    return target / name


FILES = {"aep": aep.FILE, "air": air.FILE, "nasdaq": nasdaq.FILE, "pm": pm.FILE}


def line_ends(body: bytes) -> bytes:
    unix = body.replace(b"\r\n", b"\n")
    return unix if b"\r\n" in body else unix.replace(b"\n", b"\r\n")


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "cut at a line": lambda body: body[: body.rindex(b"\n", 0, len(body) // 2) + 1],
    "one digit": lambda body: body[:5000].replace(b"1", b"2", 1) + body[5000:],
    "two rows swapped": swap_rows,
}


@pytest.mark.parametrize("damage", EDITS)
@pytest.mark.parametrize("name", FILES)
def test_edited_real_file_is_refused(name: str, damage: str, raw: Path, tmp_path: Path) -> None:
    folder = edit_copy(raw, name, FILES[name], tmp_path, EDITS[damage])
    with pytest.raises(DataError, match="not the publisher's file") as caught:
        inspect_raw(dataset(name), folder)
    assert FILES[name] in str(caught.value)


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_damaged_real_file_is_named(name: str, damage: str, raw: Path, tmp_path: Path) -> None:
    """The refusal also says where the fault is; a web page isn't even compared."""
    change, message = DAMAGE[damage]
    folder = edit_copy(raw, name, FILES[name], tmp_path, lambda body: change(body, SEPARATOR[name]))
    with pytest.raises(DataError) as caught:
        inspect_raw(dataset(name), folder)
    said = "expected data" if damage == "html page" else "not the publisher's file"
    assert said in str(caught.value)
    assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize("name", ["aep", "air", "pm"])
def test_other_line_ends_are_the_same_table(name: str, raw: Path, tmp_path: Path) -> None:
    folder = edit_copy(raw, name, FILES[name], tmp_path, line_ends)
    state = inspect_raw(dataset(name), folder)
    assert state.state == "whole"
    assert "bytes" in state.note


def test_arem_other_line_ends(raw: Path, tmp_path: Path) -> None:
    file = "walking/dataset3.csv"
    folder = edit_copy(raw, "arem", file, tmp_path, lambda body: body.replace(b"\r", b""))
    assert inspect_raw(dataset("arem"), folder).state == "whole"


def test_nasdaq_is_an_excerpt_with_its_own_split(prepared: Callable[..., Prepared]) -> None:
    card = prepared("nasdaq").card
    assert card.state == "excerpt"
    assert "4,517 of 40,560" in card.state_note
    assert any("not DA-RNN's rows" in note for note in card.notes)


@pytest.mark.parametrize(
    ("name", "control", "shown"),
    [
        ("air", "persistence", {"rmse": "3.80", "mae": "2.32", "mse": "14.4"}),
        ("air", "linear_autoregression", {"mse": "10.3"}),
        ("aep", "persistence", {"rmse": "66.4", "mae": "26.6"}),
        ("aep", "linear_autoregression", {"rmse": "60.1", "mae": "26.8"}),
        ("pm", "persistence", {"rmse": "22.2"}),
        ("pm", "linear_autoregression", {"rmse": "21.9"}),
        ("nasdaq", "persistence", {"rmse": "0.78"}),
        ("nasdaq", "linear_changes", {"rmse": "0.24"}),
        ("arem", "majority", {"accuracy": "15.8"}),
        ("arem", "logistic_regression", {"accuracy": "81.8"}),
    ],
)
def test_numbers_of_the_protocol_page(
    name: str, control: str, shown: dict[str, str], prepared: Callable[..., Prepared]
) -> None:
    """The numbers that docs/protocols.md prints come out of the default protocols."""
    page = (Path(__file__).parents[3] / "docs" / "protocols.md").read_text()
    for metric, text in shown.items():
        digits = len(text.partition(".")[2])
        assert f"{prepared(name).card.controls[control][metric]:.{digits}f}" == text
        assert text in page
