"""What every data set must keep: contract, leakage audit, nothing from the future.

Raw files are invented ones; with the mirror the real files are tested, too (test_real_files.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import yaml

from pfrnn.errors import ConfigError
from pfrnn.study.data.audit import check_contract, equal_sequences, shared_rows
from pfrnn.study.data.base import SPLITS, Arrays, Protocol, protocol_digest
from pfrnn.study.data.controls import control_scores
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.registry import alternatives, dataset, dataset_names, protocol
from pfrnn.study.data.sets import aep, air, arem, nasdaq, pm
from pfrnn.study.data.store import named_arrays
from tests.study.data import class_raw
from tests.study.data.invented import aep_test_rows, write_raw

SERIES = ("aep", "air", "pm")
NAMES = (*SERIES, "arem", "nasdaq", *class_raw.SETS)
SMALL: dict[str, dict[str, Any]] = {
    name: {"window": 12, "stride": 4} for name in (*SERIES, "nasdaq")
}
SENSORS = ("arem", "gas", "lpa", "uid")
ROOT = Path(__file__).parents[3]


@cache
def raw(name: str) -> Path:
    """The set's invented raw files."""
    folder = Path(mkdtemp())
    if name in class_raw.SETS:
        return Path(class_raw.write(name, folder))
    write_raw(name, folder)
    if name == "aep":
        (folder / aep.AUTHOR_TEST).write_bytes(aep_test_rows())
    return folder


def prepare(name: str, seed: int = 1, folder: Path | None = None, **values: Any) -> Arrays:
    values = SMALL.get(name, {}) | values
    return dataset(name).prepare(folder or raw(name), protocol(name, values), seed)


once = cache(prepare)


def digest(arrays: Arrays) -> str:
    return arrays_digest(named_arrays(arrays.splits, arrays.extra))


@pytest.mark.parametrize("name", NAMES)
def test_contract_audit_and_controls(name: str) -> None:
    arrays = once(name)
    card = dataset(name).card
    check_contract(arrays, card.task)
    assert shared_rows(arrays.splits) == []
    scores = control_scores(
        arrays.predictions, arrays.splits["test"], arrays.target_mean, arrays.target_std
    )
    assert len(scores) >= 2
    assert all(card.metric in score for score in scores.values())
    if card.task == "classification":
        assert equal_sequences(arrays.splits) == []
        assert (arrays.splits["test"].mask.sum(axis=1) == 1).all()


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bytes_and_the_split_is_drawn_by_it(name: str) -> None:
    again, other = prepare(name), prepare(name, seed=2)
    assert digest(again) == digest(once(name))
    assert again.notes == once(name).notes
    assert (digest(other) != digest(again)) is (name not in SMALL)


OTHERS = [(name, each.name) for name in NAMES for each in dataset(name).alternatives]


@pytest.mark.parametrize(("name", "chosen"), OTHERS)
def test_named_alternatives_run_and_leak_only_where_they_say(name: str, chosen: str) -> None:
    """Other keys, other arrays and another id; their controls are scored on the same rows."""
    found, leaky = {a.name: (a, leaks) for a, leaks in alternatives(name)}[chosen]
    if not found.values:
        assert (found.metric, found.scale != 1) == ("mse", True)  # another reading of the same runs
        return
    arrays = prepare(name, **found.values)
    check_contract(arrays, dataset(name).card.task)
    assert digest(arrays) != digest(once(name))
    assert bool(shared_rows(arrays.splits)) is leaky
    for values in arrays.predictions.values():
        assert len(values) == len(arrays.splits["test"].x)
    model = dataset(name).protocol
    ids = {protocol_digest(name, model(**values), 1) for values in ({}, dict(found.values))}
    assert len(ids) == 2


def test_keys_added_later_stay_out_of_recorded_ids_at_their_defaults() -> None:
    """The ids that the evidence was recorded under (seed 2020, default protocols)."""
    recorded = {
        "aep": "5153d1a6d7", "air": "6db5f9a815", "arem": "d6b86529d1", "gas": "b0b9377c25",
        "lpa": "d9982a58a4", "mr": "4abe6b6a6f", "nasdaq": "785cb96e87", "pm": "ab48ab5704",
        "r52": "c6f5a5b4c1", "uid": "cd6d58fce8", "maze10": "2bab8a2f73",
    }  # fmt: skip
    seed = yaml.safe_load((ROOT / "params.yaml").read_text())["seed"]
    for name, expected in recorded.items():
        assert protocol_digest(name, dataset(name).protocol(), seed) == expected, name
    assert any(dataset(name).protocol.added for name in recorded)


def test_draws_differ() -> None:
    draws = [digest(prepare("uid", split_seed=seed)) for seed in range(3)]
    assert len(set(draws)) == 3
    assert draws[0] == digest(once("uid"))


@pytest.mark.parametrize("name", SENSORS)
def test_random_windows_say_that_they_leak(name: str) -> None:
    arrays = prepare(name, split="random_windows")
    assert len(shared_rows(arrays.splits)) == 3
    assert any(note.startswith("LEAKY ON PURPOSE") for note in arrays.notes)
    assert not any("LEAKY" in note for note in once(name).notes)


@pytest.mark.parametrize("name", ["lpa", "uid"])
def test_train_is_standardised(name: str) -> None:
    x = once(name).splits["train"].x.astype(np.float64)
    flat = x.reshape(-1, x.shape[-1])
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(flat.std(axis=0), 1, atol=1e-5)


def test_lpa_single_activity_windows_hold_one() -> None:
    labels = dataset("lpa").read(raw("lpa"))["activity"]  # type: ignore[misc]
    for values, mixed in (({}, True), ({"activities": "single"}, False)):
        train = prepare("lpa", **values).splits["train"]
        found = labels[train.rows]
        assert bool((found != found[:, -1:]).any()) is mixed


def test_nasdaq_change_is_the_change_and_persistence_predicts_none() -> None:
    arrays = prepare("nasdaq", target="change")
    index = nasdaq.read(raw("nasdaq"))["NDX"]
    test = arrays.splits["test"]
    y = test.y[..., 0] * arrays.target_std[0] + arrays.target_mean[0]
    assert np.allclose(y, index[test.rows + 1] - index[test.rows], atol=1e-4)
    assert (arrays.predictions["persistence"] == 0).all()
    level = once("nasdaq")
    scores = [
        control_scores(a.predictions, a.splits["test"], a.target_mean, a.target_std)
        for a in (level, arrays)
    ]
    for control in scores[0]:  # an error of the change is an error of the level
        assert scores[0][control]["rmse"] == pytest.approx(scores[1][control]["rmse"], rel=1e-3)


def test_air_codes_left_in_are_targets() -> None:
    left = prepare("air", missing="value")
    assert left.splits["test"].mask.all()
    y = left.splits["test"].y * left.target_std[0] + left.target_mean[0]
    assert y.min() == pytest.approx(-200, abs=0.01)


@pytest.mark.parametrize("name", SERIES)
def test_split_by_time(name: str) -> None:
    splits = once(name).splits
    ends = [splits[split].rows.max() + 1 for split in SPLITS]  # the last predicted row
    starts = [splits[split].rows.min() for split in SPLITS]
    assert ends[0] < starts[1]
    assert ends[1] < starts[2]


@pytest.mark.parametrize("name", [*SERIES, "nasdaq"])
def test_every_test_row_is_predicted_once(name: str) -> None:
    assert (np.diff(once(name).splits["test"].rows.ravel()) == 1).all()


def columns(name: str, edit: Callable[[dict[str, Any]], None]) -> Any:
    """A stand-in for ``read`` that edits the parsed table."""
    table = dict(dataset(name).read(raw(name)))  # type: ignore[misc]
    edit(table)
    return lambda _: table


MODULES = {"aep": aep, "air": air, "nasdaq": nasdaq, "pm": pm}
TARGETS = {"aep": aep.TARGET, "air": air.TARGET, "nasdaq": nasdaq.TARGET, "pm": pm.TARGET}


@pytest.mark.parametrize("name", MODULES)
def test_scaling_and_imputation_come_from_train_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other values in test rows change nothing in train and validation, mean and scale included."""
    before = prepare(name)
    first = int(before.splits["test"].rows.min())

    def edit(table: dict[str, Any]) -> None:
        for column in (*dataset_columns(name),):
            table[column] = table[column].copy()
            table[column][first:] *= 17

    monkeypatch.setattr(MODULES[name], "read", columns(name, edit))
    after = prepare(name)
    for split in ("train", "validation"):
        assert (before.splits[split].x == after.splits[split].x).all()
        assert (before.splits[split].y == after.splits[split].y).all()
    assert before.target_mean == after.target_mean
    assert before.target_std == after.target_std
    assert not (before.splits["test"].x == after.splits["test"].x).all()


def dataset_columns(name: str) -> tuple[str, ...]:
    if name == "nasdaq":
        return (*nasdaq.STOCKS, nasdaq.TARGET)
    return tuple(MODULES[name].MEASURED)


@pytest.mark.parametrize("name", MODULES)
def test_inputs_hold_nothing_of_the_predicted_row(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change one row: inputs of the step that predicts it, and of all before, stay the same.

    NASDAQ's stocks of the predicted minute are inputs by definition (DA-RNN); its index is not.
    """
    before = prepare(name).splits["test"]
    row = int(before.rows[1, 5]) + 1

    def edit(table: dict[str, Any]) -> None:
        changed = (nasdaq.TARGET,) if name == "nasdaq" else dataset_columns(name)
        for column in changed:
            table[column] = table[column].copy()
            table[column][row] = 1234.5

    monkeypatch.setattr(MODULES[name], "read", columns(name, edit))
    after = prepare(name).splits["test"]
    early = before.rows < row
    assert (before.x[early] == after.x[early]).all()
    assert not (before.x[~early] == after.x[~early]).all()
    assert after.y[1, 5, 0] != before.y[1, 5, 0]


@pytest.mark.parametrize("name", MODULES)
def test_past_target_is_an_input(name: str) -> None:
    """The last value of the target stands among the inputs, so a model can be persistence."""
    arrays = prepare(name)
    split = arrays.splits["train"]
    wanted = {"nasdaq": "NDX before"}.get(name, TARGETS[name])
    column = arrays.features.index(wanted)
    seen = split.mask[:, :-1]
    assert np.allclose(split.x[:, 1:, column][seen], split.y[:, :-1, 0][seen])


@pytest.mark.parametrize("name", ["air", "pm"])
def test_missing_targets_are_masked_and_never_values(name: str) -> None:
    table = dataset(name).read(raw(name))  # type: ignore[misc]
    missing = np.isnan(table[TARGETS[name]])
    assert missing.any()
    arrays = prepare(name)
    for split in arrays.splits.values():
        assert (split.mask == ~missing[split.rows + 1]).all()
    flag = arrays.features.index(f"{TARGETS[name]} observed")
    test = arrays.splits["test"]
    assert (test.x[..., flag] == ~missing[test.rows]).all()
    assert min(split.x.min() for split in arrays.splits.values()) > -10  # -200 would stand out


def test_air_drops_nmhc() -> None:
    assert not any("NMHC(GT)" in name for name in prepare("air").features)


def test_aep_drops_the_random_columns() -> None:
    features = prepare("aep").features
    assert not set(aep.RANDOM) & set(features)
    assert set(aep.MEASURED) <= set(features)


def test_calendar_can_be_left_out() -> None:
    for name in SERIES:
        assert "day sin" in prepare(name).features
        assert "day sin" not in prepare(name, calendar=False).features


def test_pm_wind_is_one_of_four() -> None:
    arrays = prepare("pm")
    winds = [i for i, name in enumerate(arrays.features) if name.startswith("cbwd")]
    assert (arrays.splits["train"].x[..., winds].sum(axis=-1) == 1).all()


def test_aep_authors_split_counts_his_rows() -> None:
    splits = prepare("aep", split="author").splits
    counted = {name: set(split.rows[split.mask] + 1) for name, split in splits.items()}
    assert counted["test"] == {row for row in range(1, 397) if row % 4 == 0}
    assert not counted["train"] & counted["test"]
    assert not counted["train"] & counted["validation"]


def test_nasdaq_whole_file_has_da_rnns_rows() -> None:
    rows = nasdaq.split_rows(40560, nasdaq.NasdaqProtocol())
    assert {name: len(part) for name, part in rows.items()} == {
        "train": 35100,
        "validation": 2730,
        "test": 2730,
    }
    assert rows["test"].stop == 40560


def test_nasdaq_inputs_are_da_rnns() -> None:
    """Step: stocks of minute t, index of minute t - 1; target: index of minute t."""
    table = nasdaq.read(raw("nasdaq"))
    arrays = prepare("nasdaq")
    split = arrays.splits["train"]
    rows = split.rows
    first = np.asarray(table["AAL"])
    of_stock = first[: int(rows.max()) + 2]
    # Standardising is affine, so the correlation tells which minute stands there.
    assert np.corrcoef(split.x[..., 0].ravel(), of_stock[rows + 1].ravel())[0, 1] > 0.9999
    y = split.y[..., 0] * arrays.target_std[0] + arrays.target_mean[0]
    assert np.allclose(y, table["NDX"][rows + 1], rtol=1e-6)


def test_nasdaq_last_step() -> None:
    splits = prepare("nasdaq", predict="last_step").splits
    test = splits["test"]
    assert test.mask[:, -1].all()
    assert not test.mask[:, :-1].any()
    assert (np.diff(test.rows[:, -1]) == 1).all()


def test_arem_deals_whole_recordings_and_drops_copies() -> None:
    recordings, dropped = arem.distinct(arem.read_recordings(raw("arem")))
    assert dropped == ["lying/dataset10.csv", "lying/dataset15.csv"]
    for values in ({}, {"split": "random"}):
        sides = arem.deal(recordings, arem.AremProtocol(**values), seed=1)
        assert set(sides) == {recording.name for recording in recordings}
        for split in SPLITS:
            activities = {n.partition("/")[0] for n, side in sides.items() if side == split}
            assert activities == set(arem.ACTIVITIES)
    assert list(arem.deal(recordings, arem.AremProtocol(), 1).values()).count("test") == 19


def test_arem_classes_and_windows() -> None:
    seven = prepare("arem")
    six = prepare("arem", classes=6)
    assert seven.classes == arem.ACTIVITIES
    assert six.classes == ("bending", *arem.ACTIVITIES[2:])
    test = seven.splits["test"]
    assert len(test.y) >= 565  # what the paper's printed accuracies need
    assert (six.splits["test"].y == np.maximum(test.y - 1, 0)).all()
    assert (np.diff(test.rows, axis=1) == 1).all()


def test_protocol_refuses_unknown_keys() -> None:
    with pytest.raises(ConfigError, match=r"datasets.air:\n  windw: unknown key; did you mean"):
        protocol("air", {"windw": 3})


@pytest.mark.parametrize("name", NAMES)
def test_card_is_complete(name: str) -> None:
    card = dataset(name).card
    assert card.name == name
    assert card.rows
    assert all((card.title, card.origin, card.citation, card.licence, card.target, card.unit))
    assert any(address.url.startswith("https://") for address in card.addresses)
    for address in card.addresses:
        assert set(address.members) <= {file.name for file in card.files}
    # Every file is known: by its own digest, or by the table's.
    for file in card.files:
        assert file.sha256 or card.tables or any(a.digests for a in card.addresses)
    for text in (d for file in card.files for d in file.sha256):
        kind, _, digits = text.rpartition(":")
        assert len(digits) == {"": 64, "md5": 32, "git": 40}[kind]


@pytest.mark.parametrize("name", dataset_names())
def test_protocol_is_written_down(name: str) -> None:
    """docs/protocols.md has a section for the set, and it names every field of its own."""
    page = (ROOT / "docs" / "protocols.md").read_text()
    parts = page.split("\n## ")
    heading = "Mazes" if name.startswith("maze") else dataset(name).card.title
    section = next(part for part in parts if part.startswith(f"{heading}:"))
    kind = {"regression": "Regression sets", "classification": "Classification sets"}
    start = kind.get(dataset(name).card.task, heading)
    shared = next(part for part in parts if part.startswith(start))
    text = section if name in ("arem", "nasdaq") else section + shared
    own = set(dataset(name).protocol.model_fields) - set(Protocol.model_fields)
    assert {field for field in own if f"`{field}`" not in text} == set()
    table = section.partition("\n### ")[0]  # what follows is measured, not chosen
    rows = [line for line in table.splitlines() if re.match(r"\| (?!choice)[^-]", line)]
    assert rows
    for row in rows:
        assert re.search(r"\b(ours|paper|cited source|see the verdict)\b", row), row


@pytest.mark.parametrize("name", dataset_names())
def test_params_file_holds_every_number(name: str) -> None:
    """params.yaml names each field of the protocol, so no result hangs on a hidden default."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    own = set(dataset(name).protocol.model_fields) - set(Protocol.model_fields)
    assert own <= set(params["datasets"][name])
