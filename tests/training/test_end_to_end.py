"""A block, a selection, a final and the table, for each main variant and task."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pfrnn.errors import RecordError
from pfrnn.evaluation.aggregate import aggregate
from pfrnn.evaluation.metrics import METRICS
from pfrnn.evaluation.selection import select_cell
from pfrnn.jobfolder import break_seal
from pfrnn.records import HISTORY_COLUMNS, MEMBER_COLUMNS, RESULT_COLUMNS, TEST_COLUMNS
from pfrnn.training.block import train_block
from pfrnn.training.final import run_final

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


def test_aggregate_refuses_a_record_of_other_parameters(tmp_path):
    plan = toys.study({"study": {"variants": ["gru"]}})
    places = toys.prepared_places(plan, tmp_path)
    train_block(plan, plan.blocks[0].id, places)
    cell = plan.cells[0]
    select_cell(plan, cell.selection_id, places.results)
    run_final(plan, cell.final_id, places)
    path = places.results / cell.final_id / "run.json"
    record = json.loads(path.read_text())
    record["parameters"]["evaluation"]["passes"] = 99
    path.write_text(json.dumps(record))
    with pytest.raises(RecordError, match="changed since its job finished"):
        aggregate(plan, places.results)
    break_seal(path.parent)  # as DVC brings records
    with pytest.raises(RecordError, match="computed with parameters"):
        aggregate(plan, places.results)
