"""A repetition that never had a finite validation score: counted, and of no value to a mean."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfrnn.study.evaluate.aggregate import aggregate
from pfrnn.study.evaluate.compared import cell_metrics
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.plan import Plan, Setting
from pfrnn.study.report.evidence import read_results
from pfrnn.study.train import final
from pfrnn.study.train.block import train_block
from pfrnn.study.train.places import Places

from . import toys

# So far a step that not even the forward pass stays finite.
HOPELESS = Setting(1e30, 5.0, 1e-4)


def spoil(monkeypatch: pytest.MonkeyPatch, name: str, *places: int) -> None:
    """Give some of a final's members a learning rate that they diverge by in the first epoch."""
    made = getattr(final, name)

    def spoilt(*arguments: Any) -> Any:
        members = list(made(*arguments))
        for place in places:
            members[place] = members[place]._replace(setting=HOPELESS)
        return members

    monkeypatch.setattr(final, name, spoilt)


def trained(plan: Plan, folder: Path) -> tuple[Places, Path]:
    """Search, select and finalise the plan's one cell; its places and the final's folder."""
    places, cell = toys.prepared_places(plan, folder), plan.cells[0]
    for block in cell.blocks:
        train_block(plan, block.id, places)
    select_cell(plan, cell.selection_id, places.results)
    final.run_final(plan, cell.final_id, places)
    return places, places.results / cell.final_id


def values(folder: Path, metric: str) -> dict[str, float]:
    with (folder / "test.csv").open(newline="") as source:
        rows = [row for row in csv.DictReader(source) if row["metric"] == metric]
    return {row["repetition"]: float(row["value"]) for row in rows}


def test_a_repetition_that_learned_nothing_has_no_value(tmp_path, monkeypatch) -> None:
    spoil(monkeypatch, "final_members", 1)
    plan = toys.study({"study": {"variants": ["lstm"]}, "evaluation": {"repetitions": 3}})
    places, folder = trained(plan, tmp_path)
    with (folder / "members.csv").open(newline="") as source:
        status = [row["status"] for row in csv.DictReader(source)]
    assert [one == "diverged" for one in status] == [False, True, False]
    found = values(folder, "rmse")
    assert [math.isfinite(one) for one in found.values()] == [True, False, True]
    # Into the table, and out of every mean.
    aggregate(plan, places.results)
    frame = read_results(places.results / "results.csv")
    frame = frame[frame["metric"] == "rmse"]
    assert frame["value"].isna().tolist() == [False, True, False]
    mean = (found["1"] + found["3"]) / 2
    assert cell_metrics(folder)["rmse"] == pytest.approx(mean, rel=1e-12)


def test_an_ensemble_leaves_out_who_learned_nothing(tmp_path, monkeypatch) -> None:
    spoil(monkeypatch, "ensemble_members", 2, 4, 5, 6, 7)
    averaged: list[int] = []
    combine = final.combine

    def noted(prediction: Any, task: Any) -> Any:
        averaged.append(len(prediction))
        return combine(prediction, task)

    monkeypatch.setattr(final, "combine", noted)
    plan = toys.study(
        {"study": {"variants": ["gru_ensemble"]}, "evaluation": {"ensemble_repetitions": 2}}
    )
    _, folder = trained(plan, tmp_path)
    # Three of the first ensemble's four members; of the second none learned.
    assert averaged == [3, 4]
    found = values(folder, "rmse")
    assert math.isfinite(found["1"])
    assert np.isnan(found["2"])
