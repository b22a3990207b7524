"""Pictures of the data, the exact posterior in the belief picture, and the data cards."""

import csv
import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulated

from pfrnn.study.data.registry import dataset
from pfrnn.study.report.pictures import exact_belief, sequences
from pfrnn.study.report.report import write_report

SETS = ("maze10", "air", "nasdaq", "arem", "mr")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    plan = simulated.study("gpu", SETS, ("lstm", "pf_lstm"))
    results, prepared = simulated.write_tree(folder, plan, simulated.result_rows(plan, 2))
    for path in prepared.glob("arem-*/card.json"):
        path.write_text(path.read_text().replace('"capped": {}', '"capped": {"train": 4900}'))
    write_report(results, prepared, plan, folder / "report")
    return folder


def prepared(tree: Path, name: str) -> tuple[Path, dict[str, Any]]:
    (folder,) = (tree / "prepared").glob(f"{name}-*")
    return folder, json.loads((folder / "card.json").read_text())


def test_targets_are_in_their_unit_and_gaps_stay_gaps(tree: Path) -> None:
    folder, card = prepared(tree, "air")
    found = sequences(folder, card)
    with np.load(folder / "arrays.npz") as stored:
        y, mask = stored["test/y"], stored["test/mask"]
    assert found["titles"] == ["test sequence 0", "test sequence 4", "test sequence 7"]
    for line, place in zip(found["lines"], (0, 4, 7), strict=True):
        shown = [value for (value,) in line]
        assert [value is None for value in shown] == (~mask[place]).tolist()
        wanted = y[place, :, 0] * 2 + 5
        seen = [(a, b) for a, b in zip(shown, wanted, strict=True) if a is not None]
        assert np.allclose(*np.array(seen).T, atol=1e-4)
    assert not all(value is not None for line in found["lines"] for (value,) in line)


def test_a_set_that_may_not_be_passed_on_shows_differences_only(tree: Path) -> None:
    found = sequences(*prepared(tree, "nasdaq"))
    assert found["differences"]
    first = [line[0][0] for line in found["lines"]]
    assert set(first) <= {0.0, None}


def test_classes_and_texts(tree: Path) -> None:
    found = sequences(*prepared(tree, "arem"))
    assert found["titles"] == ["sitting", "standing", "walking"]
    assert found["features"] == ["x", "y", "z"]
    text = sequences(*prepared(tree, "mr"))
    assert [len(tokens) for tokens in text["tokens"]] == [40, 40, 40]


def test_without_arrays_there_is_no_picture(tree: Path, tmp_path: Path) -> None:
    _, card = prepared(tree, "air")
    assert sequences(tmp_path, card) == {}
    assert exact_belief(tmp_path, [0]) == {}


def test_the_exact_posterior_is_found_by_the_trajectories_rows(tree: Path, tmp_path: Path) -> None:
    """A tier's cap reorders the test trajectories; the posterior must follow them."""
    folder, _ = prepared(tree, "maze10")
    with np.load(folder / "arrays.npz") as stored:
        arrays = dict(stored)
    kept = np.array([5, 1])
    capped = arrays | {"test/rows": arrays["test/rows"][kept]}
    capped["extra/exact_rows"] = arrays["extra/exact_rows"][:5]
    np.savez(tmp_path / "arrays.npz", **capped)
    found = exact_belief(tmp_path, [0, 1])
    assert found["exact_mean"][0] is None  # trajectory 5 was not answered
    assert np.allclose(found["exact_mean"][1], arrays["extra/exact_mean"][1], atol=5e-4)
    assert found["exact_samples"][0] is None
    assert np.allclose(found["exact_samples"][1], arrays["extra/exact_samples"][1], atol=5e-3)


def test_the_page_shows_cards_pictures_and_the_exact_posterior(tree: Path) -> None:
    text = html.unescape((tree / "report" / "index.html").read_text())
    for name in SETS:
        assert f'id="figure-data-{name}"' in text
        assert dataset(name).card.licence.rstrip(".") in text
    assert "by the tier's caps: train 4,900" in text
    assert "the data may not be passed on" in text
    assert "mean of the exact posterior, the best answer there is" in text
    assert "control: exact posterior, by its own variance" in text
    assert "± 0.0290 (standard error) 2,000 trajectories" in text
    assert f"pfrnn final final/air/lstm-fixed-{'0123456789'} --tier gpu" in text


def test_the_selected_member_stands_beside_and_judges_nothing(tree: Path, tmp_path: Path) -> None:
    """Ten times the value in its column: another number in the table, the same verdicts."""
    plan = simulated.study("gpu", ("air",), ("lstm", "pf_lstm"))

    def cells(factor: float) -> list[dict[str, str]]:
        rows = simulated.result_rows(plan, 3)
        for row in rows:
            row["selected_member_value"] *= factor
        results, cards = simulated.write_tree(tmp_path / str(factor), plan, rows, finals=False)
        write_report(results, cards, plan, tmp_path / str(factor) / "report")
        path = tmp_path / str(factor) / "report" / "tables" / "cells.csv"
        with path.open(encoding="utf-8", newline="") as source:
            return [row for row in csv.DictReader(source) if row["ours"]]

    plain, other = cells(1.0), cells(10.0)
    assert plain
    for one, two in zip(plain, other, strict=True):
        assert float(two.pop("selected_member")) == pytest.approx(
            10 * float(one.pop("selected_member"))
        )
        assert one == two
