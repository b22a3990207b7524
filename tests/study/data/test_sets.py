"""What every data set of this file must keep: contract, leakage audit, nothing from the future.

Raw files are invented ones; with the mirror the real files are tested, too (test_real_files.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pfrnn.errors import ConfigError
from pfrnn.study.data.audit import check_contract, leaks
from pfrnn.study.data.base import SPLITS, Arrays, Protocol
from pfrnn.study.data.digests import arrays_digest
from pfrnn.study.data.registry import dataset, dataset_names, protocol
from pfrnn.study.data.sets import aep, air, arem, nasdaq, pm
from pfrnn.study.data.store import named_arrays
from tests.study.data.invented import ONE_FILE, aep_test_rows, write_raw

NAMES = ("aep", "air", "arem", "nasdaq", "pm")
SERIES = ("aep", "air", "pm")
SMALL = {"window": 12, "stride": 4}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    base = tmp_path_factory.mktemp("raw")

    def folder(name: str) -> Path:
        return base / name if (base / name).is_dir() else write_raw(name, base / name)

    return folder


def prepare(name: str, folder: Path, seed: int = 1, **values: Any) -> Arrays:
    small = {} if name == "arem" else SMALL
    return dataset(name).prepare(folder, protocol(name, {**small, **values}), seed)


def digest(arrays: Arrays) -> str:
    return arrays_digest(named_arrays(arrays.splits, arrays.extra))


@pytest.mark.parametrize("name", NAMES)
def test_contract_and_leakage_audit(name: str, raw: Callable[[str], Path]) -> None:
    arrays = prepare(name, raw(name))
    check_contract(arrays, dataset(name).card.task)
    assert leaks(arrays.splits) == []


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bytes(name: str, raw: Callable[[str], Path]) -> None:
    assert digest(prepare(name, raw(name))) == digest(prepare(name, raw(name)))


def test_arem_validation_is_drawn_by_the_seed(raw: Callable[[str], Path]) -> None:
    assert digest(prepare("arem", raw("arem"), 1)) != digest(prepare("arem", raw("arem"), 2))


@pytest.mark.parametrize("name", SERIES)
def test_split_by_time(name: str, raw: Callable[[str], Path]) -> None:
    splits = prepare(name, raw(name)).splits
    ends = [splits[split].rows.max() + 1 for split in SPLITS]  # the last predicted row
    starts = [splits[split].rows.min() for split in SPLITS]
    assert ends[0] < starts[1]
    assert ends[1] < starts[2]


@pytest.mark.parametrize("name", [*SERIES, "nasdaq"])
def test_every_test_row_is_predicted_once(name: str, raw: Callable[[str], Path]) -> None:
    rows = prepare(name, raw(name)).splits["test"].rows.ravel()
    assert (np.diff(rows) == 1).all()


def columns(name: str, folder: Path, edit: Callable[[dict[str, Any]], None]) -> Any:
    """A stand-in for ``read`` that edits the parsed table."""
    table = dict(dataset(name).read(folder))  # type: ignore[misc]
    edit(table)
    return lambda _: table


MODULES = {"aep": aep, "air": air, "nasdaq": nasdaq, "pm": pm}
TARGETS = {"aep": aep.TARGET, "air": air.TARGET, "nasdaq": nasdaq.TARGET, "pm": pm.TARGET}


@pytest.mark.parametrize("name", MODULES)
def test_scaling_and_imputation_come_from_train_only(
    name: str, raw: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other values in test rows change nothing in train and validation, mean and scale included."""
    before = prepare(name, raw(name))
    first = int(before.splits["test"].rows.min())

    def edit(table: dict[str, Any]) -> None:
        for column in (*dataset_columns(name),):
            table[column] = table[column].copy()
            table[column][first:] *= 17

    monkeypatch.setattr(MODULES[name], "read", columns(name, raw(name), edit))
    after = prepare(name, raw(name))
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
    name: str, raw: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change one row: inputs of the step that predicts it, and of all before, stay the same.

    NASDAQ's stocks of the predicted minute are inputs by definition (DA-RNN); its index is not.
    """
    before = prepare(name, raw(name)).splits["test"]
    row = int(before.rows[1, 5]) + 1

    def edit(table: dict[str, Any]) -> None:
        changed = (nasdaq.TARGET,) if name == "nasdaq" else dataset_columns(name)
        for column in changed:
            table[column] = table[column].copy()
            table[column][row] = 1234.5

    monkeypatch.setattr(MODULES[name], "read", columns(name, raw(name), edit))
    after = prepare(name, raw(name)).splits["test"]
    early = before.rows < row
    assert (before.x[early] == after.x[early]).all()
    assert not (before.x[~early] == after.x[~early]).all()
    assert after.y[1, 5, 0] != before.y[1, 5, 0]


@pytest.mark.parametrize("name", MODULES)
def test_past_target_is_an_input(name: str, raw: Callable[[str], Path]) -> None:
    """The last value of the target stands among the inputs, so a model can be persistence."""
    arrays = prepare(name, raw(name))
    split = arrays.splits["train"]
    wanted = {"nasdaq": "NDX before"}.get(name, TARGETS[name])
    column = arrays.features.index(wanted)
    seen = split.mask[:, :-1]
    assert np.allclose(split.x[:, 1:, column][seen], split.y[:, :-1, 0][seen])


@pytest.mark.parametrize("name", ["air", "pm"])
def test_missing_targets_are_masked_and_never_values(name: str, raw: Callable[[str], Path]) -> None:
    table = dataset(name).read(raw(name))  # type: ignore[misc]
    missing = np.isnan(table[TARGETS[name]])
    assert missing.any()
    arrays = prepare(name, raw(name))
    for split in arrays.splits.values():
        assert (split.mask == ~missing[split.rows + 1]).all()
    flag = arrays.features.index(f"{TARGETS[name]} observed")
    test = arrays.splits["test"]
    assert (test.x[..., flag] == ~missing[test.rows]).all()
    assert min(split.x.min() for split in arrays.splits.values()) > -10  # -200 would stand out


def test_air_drops_nmhc(raw: Callable[[str], Path]) -> None:
    assert not any("NMHC(GT)" in name for name in prepare("air", raw("air")).features)


def test_aep_drops_the_random_columns(raw: Callable[[str], Path]) -> None:
    features = prepare("aep", raw("aep")).features
    assert not set(aep.RANDOM) & set(features)
    assert set(aep.MEASURED) <= set(features)


def test_calendar_can_be_left_out(raw: Callable[[str], Path]) -> None:
    for name in SERIES:
        assert "day sin" in prepare(name, raw(name)).features
        assert "day sin" not in prepare(name, raw(name), calendar=False).features


def test_pm_wind_is_one_of_four(raw: Callable[[str], Path]) -> None:
    arrays = prepare("pm", raw("pm"))
    winds = [i for i, name in enumerate(arrays.features) if name.startswith("cbwd")]
    assert (arrays.splits["train"].x[..., winds].sum(axis=-1) == 1).all()


def test_aep_authors_split_counts_his_rows_and_is_marked_leaky(
    raw: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = write_raw("aep", tmp_path / "aep")
    (folder / aep.AUTHOR_TEST).write_bytes(aep_test_rows())
    values = protocol("aep", {**SMALL, "split": "author"})
    assert values.leaky  # type: ignore[attr-defined]
    assert not protocol("aep", SMALL).leaky  # type: ignore[attr-defined]
    splits = dataset("aep").prepare(folder, values, 1).splits
    counted = {name: set(split.rows[split.mask] + 1) for name, split in splits.items()}
    assert counted["test"] == {row for row in range(1, 397) if row % 4 == 0}
    assert not counted["train"] & counted["test"]
    assert not counted["train"] & counted["validation"]
    assert leaks(splits) != []


def test_nasdaq_whole_file_has_da_rnns_rows() -> None:
    rows = nasdaq.split_rows(40560, nasdaq.NasdaqProtocol())
    assert {name: len(part) for name, part in rows.items()} == {
        "train": 35100,
        "validation": 2730,
        "test": 2730,
    }
    assert rows["test"].stop == 40560


def test_nasdaq_inputs_are_da_rnns(raw: Callable[[str], Path]) -> None:
    """Step: stocks of minute t, index of minute t - 1; target: index of minute t."""
    table = nasdaq.read(raw("nasdaq"))
    arrays = prepare("nasdaq", raw("nasdaq"))
    split = arrays.splits["train"]
    rows = split.rows
    first = np.asarray(table["AAL"])
    of_stock = first[: int(rows.max()) + 2]
    # Standardising is affine, so the correlation tells which minute stands there.
    assert np.corrcoef(split.x[..., 0].ravel(), of_stock[rows + 1].ravel())[0, 1] > 0.9999
    y = split.y[..., 0] * arrays.target_std[0] + arrays.target_mean[0]
    assert np.allclose(y, table["NDX"][rows + 1], rtol=1e-6)


def test_nasdaq_last_step(raw: Callable[[str], Path]) -> None:
    splits = prepare("nasdaq", raw("nasdaq"), predict="last_step").splits
    test = splits["test"]
    assert test.mask[:, -1].all()
    assert not test.mask[:, :-1].any()
    assert (np.diff(test.rows[:, -1]) == 1).all()


def test_arem_deals_whole_recordings_and_drops_copies(raw: Callable[[str], Path]) -> None:
    recordings, dropped = arem.distinct(arem.read_recordings(raw("arem")))
    assert dropped == ["lying/dataset10.csv", "lying/dataset15.csv"]
    for values in (protocol("arem", {}), protocol("arem", {"split": "random"})):
        parts = arem.deal(recordings, values, seed=1)  # type: ignore[arg-type]
        assert sum(map(len, parts.values())) == len(recordings) == 86
        assert set.union(*parts.values()) == {recording.name for recording in recordings}
        for part in parts.values():
            assert {name.partition("/")[0] for name in part} == set(arem.ACTIVITIES)
    public = arem.deal(recordings, protocol("arem", {}), seed=1)  # type: ignore[arg-type]
    assert len(public["test"]) == 19


def test_arem_classes_and_windows(raw: Callable[[str], Path]) -> None:
    seven = prepare("arem", raw("arem"))
    six = prepare("arem", raw("arem"), classes=6)
    assert seven.classes == arem.ACTIVITIES
    assert six.classes == ("bending", *arem.ACTIVITIES[2:])
    test = seven.splits["test"]
    assert len(test.y) >= 565  # what the paper's printed accuracies need
    assert (six.splits["test"].y == np.maximum(test.y - 1, 0)).all()
    assert (np.diff(test.rows, axis=1) == 1).all()


@pytest.mark.parametrize("name", NAMES)
def test_protocol_refuses_unknown_keys(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"datasets.{name}:\n  windw: unknown key; did you mean"):
        protocol(name, {"windw": 3})


@pytest.mark.parametrize("name", ONE_FILE)
def test_card_is_complete(name: str) -> None:
    card = dataset(name).card
    assert card.name == name
    assert card.rows
    assert all((card.title, card.origin, card.citation, card.licence, card.target, card.unit))
    assert card.metric in ("rmse", "mse")
    assert any(address.url.startswith("https://") for address in card.addresses)
    required = {file.name for file in card.files if not file.optional}
    assert any(
        not address.members or required <= set(address.members) for address in card.addresses
    )


@pytest.mark.parametrize("name", dataset_names())
def test_protocol_is_written_down(name: str) -> None:
    """docs/protocols.md has a section for the set, and it names every field of its own."""
    page = (Path(__file__).parents[3] / "docs" / "protocols.md").read_text()
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
    params = yaml.safe_load((Path(__file__).parents[3] / "params.yaml").read_text())
    own = set(dataset(name).protocol.model_fields) - set(Protocol.model_fields)
    assert own <= set(params["datasets"][name])
