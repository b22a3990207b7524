"""The real files of the mirror: states, golden arrays, known counts, traps, levels, edits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.base import Prepared
from pfrnn.study.data.controls import persistence, regression_scores
from pfrnn.study.data.fetch import fetch
from pfrnn.study.data.prepare import make_prepared
from pfrnn.study.data.registry import dataset, protocol
from pfrnn.study.data.scaling import carry_forward
from pfrnn.study.data.sets import aep, air, arem, nasdaq, pm
from pfrnn.study.data.state import inspect_raw
from pfrnn.study.files import read_json

pytestmark = [
    pytest.mark.mirror,
    pytest.mark.skipif(
        not os.environ.get("PFRNN_DATA_MIRROR"),
        reason="the real raw files are needed: set PFRNN_DATA_MIRROR",
    ),
]
# Digests of the arrays that the default protocols prepare (seed 2020).
GOLDEN: dict[str, str] = read_json(Path(__file__).with_name("prepared_digests.json"))
ROWS = {
    "aep": 19735, "air": 9357, "arem": 42239, "gas": 4131, "lpa": 57623, "mr": 10662,
    "nasdaq": 4517, "pm": 43824, "r52": 9100, "uid": 149332,
}  # fmt: skip
EXCERPTS = ("gas", "lpa", "nasdaq")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All raw folders, fetched from the mirror."""
    folder = tmp_path_factory.mktemp("raw")
    for name in ROWS:
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


@pytest.mark.parametrize("name", ROWS)
def test_state_rows_and_golden_arrays(
    name: str, raw: Path, prepared: Callable[..., Prepared]
) -> None:
    state = inspect_raw(dataset(name), raw / name)
    assert state.state == ("excerpt" if name in EXCERPTS else "whole")
    assert max(len(column) for column in dataset(name).read(raw / name).values()) == ROWS[name]  # type: ignore[misc]
    assert (dataset(name).card.rows == ROWS[name]) is (state.state == "whole")
    assert prepared(name).card.arrays_digest == GOLDEN[name]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["maze10", "maze18", "maze27"])
def test_golden_mazes(name: str, tmp_path: Path) -> None:
    made = make_prepared(dataset(name), protocol(name, {}), 2020, tmp_path)
    assert made.card.arrays_digest == GOLDEN[name]


FIRST = {
    "aep": aep.FILE, "air": air.FILE, "pm": pm.FILE, "uid": "7.csv", "nasdaq": nasdaq.FILE,
    "arem": "walking/dataset3.csv", "lpa": "ConfLongDemo_JSI.txt", "r52": "r52-test-all-terms.txt",
    "mr": "rt-polarity.pos", "gas": "HT_Sensor_dataset.dat",
}  # fmt: skip


def edited(raw: Path, name: str, target: Path, change: Callable[[bytes], bytes]) -> Path:
    """A copy of a raw folder with one file changed, and without a memory."""
    shutil.copytree(raw / name, target / name)
    path = target / name / FIRST[name]
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))
    for record in ("fetch.json", ".fetch.json"):
        (target / name / record).unlink()
    return target / name


def resaved(body: bytes) -> bytes:
    """Other line ends, a byte-order mark, no last line end."""
    unix = body.replace(b"\r\n", b"\n").rstrip(b"\n")
    return b"\xef\xbb\xbf" + (unix if b"\r\n" in body else unix.replace(b"\n", b"\r\n"))


@pytest.mark.parametrize("name", FIRST)
def test_a_resaved_file_is_the_same_table(name: str, raw: Path, tmp_path: Path) -> None:
    folder = edited(raw, name, tmp_path, resaved)
    assert inspect_raw(dataset(name), folder).state == ("excerpt" if name in EXCERPTS else "whole")


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda body: body[: body.rindex(b"\n", 0, len(body) // 2) + 1],
    "swapped": lambda body: b"\n".join(
        [*(lines := body.split(b"\n"))[:10], lines[11], lines[10], *lines[12:]]
    ),
}


# The order of GAS's and LPA's lines carries no meaning.
EDITS = [(n, c) for n in FIRST for c in CHANGES if c == "cut" or n not in ("gas", "lpa")]


@pytest.mark.parametrize(("name", "change"), EDITS)
def test_an_edited_file_is_an_error(name: str, change: str, raw: Path, tmp_path: Path) -> None:
    """Also one that only an alternative protocol reads (MR's polarity file)."""
    folder = edited(raw, name, tmp_path, CHANGES[change])
    with pytest.raises(DataError, match=r"not the publisher's file|expected|do not fit"):
        inspect_raw(dataset(name), folder)


def test_mr_files_swapped_are_an_error(raw: Path, tmp_path: Path) -> None:
    negative = (raw / "mr/rt-polarity.neg").read_bytes()
    folder = edited(raw, "mr", tmp_path, lambda body: negative)
    (folder / "rt-polarity.neg").write_bytes((raw / "mr/rt-polarity.pos").read_bytes())
    with pytest.raises(DataError, match="not the publisher's file"):
        inspect_raw(dataset("mr"), folder)


@pytest.mark.parametrize("name", ["aep", "air", "arem", "nasdaq", "pm"])
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
    steps = table["author_test"]
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
        ("lpa", "random_forest", {"accuracy": "84.6"}),
        ("gas", "random_forest", {"accuracy": "81.5"}),
        ("uid", "random_forest", {"accuracy": "68.5"}),
        ("mr", "tfidf_linear_svc", {"accuracy": "76.0"}),
        ("r52", "tfidf_linear_svc", {"accuracy": "95.0"}),
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
