"""A block, a selection, a final and the table, for each main variant and task."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pfrnn.study.evaluate.aggregate import aggregate
from pfrnn.study.evaluate.metrics import METRICS
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.records import HISTORY_COLUMNS, MEMBER_COLUMNS, RESULT_COLUMNS, TEST_COLUMNS
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import run_final

from . import toys


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as source:
        return list(csv.DictReader(source))


def _columns(path: Path) -> list[str]:
    return path.read_text().splitlines()[0].split(",")


@pytest.mark.parametrize("name", ["toy_regression", "toy_classes", "maze10"])
def test_whole_line(tmp_path, name):
    plan = toys.study({"study": {"datasets": [name]}})
    places = toys.prepared_places(plan, tmp_path)
    for block in plan.blocks:
        train_block(plan, block.id, places)
        folder = places.results / block.id
        assert _columns(folder / "members.csv")[: len(MEMBER_COLUMNS)] == list(MEMBER_COLUMNS)
        history = _rows(folder / "history.csv")
        assert tuple(history[0])[: len(HISTORY_COLUMNS)] == HISTORY_COLUMNS
        assert len(history) == 2 * 3
        assert not list(folder.glob("checkpoint*"))
        particles = block.variant.startswith("pf")
        assert (history[0]["ess"] != "") == particles
    for cell in plan.cells:
        select_cell(plan, cell.selection_id, places.results)
        run_final(plan, cell.final_id, places)
        folder = places.results / cell.final_id
        tested = _rows(folder / "test.csv")
        assert tuple(tested[0]) == TEST_COLUMNS
        task = json.loads((folder / "run.json").read_text())["task"]
        assert len(tested) == 2 * len(METRICS[task])
        assert {row["repetition"] for row in tested} == {"1", "2"}
        assert (folder / "belief.npz").exists() == cell.variant.startswith("pf")
        with np.load(folder / "predictions.npz") as sample:
            assert len(sample["index"]) == len(sample["length"]) > 0
    done = aggregate(plan, places.results)
    assert done.finals == 4
    table = _rows(places.results / "results.csv")
    assert tuple(table[0]) == RESULT_COLUMNS
    assert done.rows == len(table) == 4 * 2 * len(METRICS[task])
    assert all(row["value"] != "" for row in table)
    # Paired: repetition r has the same seed whatever the variant.
    seeds = {(row["repetition"], row["seed"]) for row in table}
    assert len(seeds) == 2


def test_errors_of_every_test_item_give_the_metric_again(tmp_path):
    """One pass, so that the mean over passes is the metric of the mean."""
    study = {"datasets": ["toy_regression", "toy_classes", "maze10"], "variants": ["gru"]}
    plan = toys.study({"study": study})
    places = toys.prepared_places(plan, tmp_path)
    for cell in plan.cells:
        train_block(plan, cell.blocks[0].id, places)
        select_cell(plan, cell.selection_id, places.results)
        run_final(plan, cell.final_id, places)
        folder = places.results / cell.final_id
        metric = json.loads((folder / "run.json").read_text())["metric"]
        tested = {
            row["repetition"]: float(row["value"])
            for row in _rows(folder / "test.csv")
            if row["metric"] == metric
        }
        with np.load(folder / "errors.npz") as kept:
            error, count, cluster = kept["error"], kept["count"], kept["cluster"]
            assert [str(one) for one in kept["repetition"]] == list(tested)
        assert error.shape == (2, len(count)) == (2, len(cluster))
        means = error.sum(1, dtype=np.float64) / count.sum()
        again = {"rmse": means**0.5, "accuracy": 100 * means, "last_step_mse": means}[metric]
        assert again == pytest.approx(list(tested.values()), rel=1e-6)
