"""Prepared arrays: same bytes for the same content, checked on loading, audited, capped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfrnn.errors import DataError, MissingDataError
from pfrnn.study.data.audit import check_contract, equal_sequences, shared_rows
from pfrnn.study.data.base import Arrays, Card, Dataset, Protocol, Split
from pfrnn.study.data.forecast import forecast_windows
from pfrnn.study.data.prepare import make_prepared
from pfrnn.study.data.store import load_prepared, save_prepared

RANGES = {"train": range(60), "validation": range(60, 80), "test": range(80, 100)}


def toy_arrays(ranges: dict[str, range] | None = None, stride: int = 4) -> Arrays:
    x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    observed = np.ones(100, dtype=bool)
    splits = {
        name: forecast_windows(
            x, x[:, :1], observed, np.arange(rows.start, rows.stop - 4, stride), 4
        )
        for name, rows in (ranges or RANGES).items()
    }
    truth = splits["test"].y.astype(np.float64) * 2.0 + 1.0
    return Arrays(
        splits,
        target_mean=(1.0,),
        target_std=(2.0,),
        features=("a", "b"),
        predictions={"exact": truth, "off by its row": truth + splits["test"].rows[..., None]},
        extra={"map": np.eye(3)},
        notes=("a note",),
    )


class ToyProtocol(Protocol):
    on_purpose: bool = False

    @property
    def leaky(self) -> bool:
        return self.on_purpose


def toy(arrays: Arrays) -> Dataset:
    text = dict.fromkeys(("title", "origin", "citation", "licence", "target", "unit"), "invented")
    card = Card(
        name="toy", task="regression", redistributable=True, rows=None,
        metric="rmse", **text,
    )  # fmt: skip
    return Dataset(card, ToyProtocol, lambda folder, protocol, seed: arrays)


def prepared(tmp_path: Path, arrays: Arrays | None = None, seed: int = 0, **protocol: Any) -> Any:
    return make_prepared(toy(arrays or toy_arrays()), ToyProtocol(**protocol), seed, tmp_path)


def test_round_trip(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    save_prepared(made, tmp_path / "out")
    loaded = load_prepared(tmp_path / "out")
    assert loaded.card == made.card
    assert loaded.card.state == "simulated"
    assert loaded.card.sequences == {"train": 14, "validation": 4, "test": 4}
    for name, split in made.splits.items():
        for field in Split._fields:
            ours, theirs = getattr(split, field), getattr(loaded.splits[name], field)
            assert ours.dtype == theirs.dtype
            assert (ours == theirs).all()
    assert (loaded.extra["map"] == np.eye(3)).all()


def test_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for place in ("one", "two"):
        save_prepared(prepared(tmp_path), tmp_path / place)
    for file in ("arrays.npz", "card.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_digest_is_checked_on_loading(tmp_path: Path) -> None:
    save_prepared(prepared(tmp_path), tmp_path / "one")
    other = toy_arrays()
    other.splits["train"].x[0, 0, 0] += 1
    save_prepared(prepared(tmp_path, other), tmp_path / "two")
    (tmp_path / "one/arrays.npz").write_bytes((tmp_path / "two/arrays.npz").read_bytes())
    with pytest.raises(DataError, match=r"arrays.npz: content has digest .* card says"):
        load_prepared(tmp_path / "one")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no prepared data here; run `pfrnn prepare`"):
        load_prepared(tmp_path)
    save_prepared(prepared(tmp_path), tmp_path / "out")
    whole = (tmp_path / "out/arrays.npz").read_bytes()
    (tmp_path / "out/arrays.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"arrays.npz: damaged"):
        load_prepared(tmp_path / "out")
    (tmp_path / "out/arrays.npz").unlink()
    with pytest.raises(DataError, match=r"arrays.npz: missing"):
        load_prepared(tmp_path / "out")
    card = json.loads((tmp_path / "out/card.json").read_text())
    (tmp_path / "out/card.json").write_text(json.dumps({**card, "unknown": 1}))
    with pytest.raises(DataError, match=r"card.json: damaged or of another version"):
        load_prepared(tmp_path / "out")


def test_controls_are_measured_after_the_caps(tmp_path: Path) -> None:
    whole = prepared(tmp_path)
    assert whole.card.controls["exact"]["rmse"] < 1e-6
    capped = prepared(tmp_path, max_test=2)
    assert capped.card.sequences["test"] == 2
    assert capped.card.capped == {"test": 2}
    rows = capped.splits["test"].rows.astype(float)
    assert capped.card.controls["off by its row"]["mse"] == pytest.approx(np.mean(rows**2))
    assert capped.card.controls["off by its row"] != whole.card.controls["off by its row"]


def test_shared_rows_are_refused_unless_meant(tmp_path: Path) -> None:
    leaking = toy_arrays({**RANGES, "test": range(75, 100)})
    with pytest.raises(DataError, match=r"the protocol leaks: .* in validation and in test"):
        prepared(tmp_path, leaking)
    notes = prepared(tmp_path, leaking, on_purpose=True).card.notes
    assert any(note.startswith("LEAKY ON PURPOSE") for note in notes)


def test_audit_finds_equal_sequences() -> None:
    arrays = toy_arrays()
    assert equal_sequences(arrays.splits) == []
    assert shared_rows(arrays.splits) == []
    arrays.splits["test"].x[1] = arrays.splits["train"].x[3]
    assert equal_sequences(arrays.splits) == ["1 sequences of train stand in test, too"]


def spoil(field: str, change: Any) -> Arrays:
    arrays = toy_arrays()
    splits = dict(arrays.splits)
    splits["train"] = splits["train"]._replace(**{field: change(getattr(splits["train"], field))})
    return arrays._replace(splits=splits)


BROKEN = {
    "x: expected type float32": spoil("x", lambda x: x.astype(np.float64)),
    "not finite": spoil("x", lambda x: np.where(x > 2, np.nan, x).astype(np.float32) * np.nan),
    "length: expected 1 to 4": spoil("length", lambda length: length * 0),
    "mask is True in the padding": spoil("length", lambda length: length - 1),
    "y: expected shape": spoil("y", lambda y: y[:, :2]),
    "rows: expected shape": spoil("rows", lambda rows: rows[:, :2]),
    "expected 14 > 0 sequences": spoil("length", lambda length: length[:3]),
    "features: 1 names for 2 columns": toy_arrays()._replace(features=("a",)),
    "splits: expected train, validation, test": toy_arrays()._replace(splits={}),
}


@pytest.mark.parametrize("message", BROKEN)
def test_contract_faults_are_named(message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_contract(BROKEN[message], "regression")


def test_missing_raw_files(tmp_path: Path) -> None:
    from pfrnn.study.data.registry import dataset, protocol

    with pytest.raises(MissingDataError, match=r"1 of 1 raw files missing .*pfrnn fetch air"):
        make_prepared(dataset("air"), protocol("air", {}), 0, tmp_path)
