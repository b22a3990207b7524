"""A block, a selection, a final and the table, for each main variant and task."""

from __future__ import annotations

import csv
import json
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pfrnn.errors import RecordError
from pfrnn.study.evaluate.aggregate import aggregate
from pfrnn.study.evaluate.metrics import METRICS
from pfrnn.study.evaluate.selection import read_selection, select_cell
from pfrnn.study.jobfolder import break_seal
from pfrnn.study.progress import job_states
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


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A finished cell, without seals, as DVC brings it."""
    plan = toys.study({"study": {"variants": ["gru"]}})
    places = toys.prepared_places(plan, tmp_path_factory.mktemp("one"))
    cell = plan.cells[0]
    train_block(plan, plan.blocks[0].id, places)
    select_cell(plan, cell.selection_id, places.results)
    run_final(plan, cell.final_id, places)
    for job in (plan.blocks[0].id, cell.final_id):
        break_seal(places.results / job)
    return plan, cell, places.results


@contextmanager
def edited(path, change):
    """Change a JSON file for a while; ``change`` takes what it holds and returns what it shall."""
    before = path.read_text()
    path.write_text(json.dumps(change(json.loads(before))))
    try:
        yield
    finally:
        path.write_text(before)


def without(name):
    return lambda record: {key: value for key, value in record.items() if key != name}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("parameters"), "got one without parameters; .*pfrnn final"),
        (without("selection"), "lacks or damages an entry .'selection'.; .*pfrnn final"),
        (lambda record: record | {"selection": 5}, "lacks or damages an entry"),
        (lambda record: record | {"parameters": {}}, "computed with parameters"),
        (lambda record: None, "expected a JSON mapping, got NoneType; .*pfrnn final"),
        (lambda record: [], "expected a JSON mapping, got list; .*pfrnn final"),
    ],
)
def test_status_says_failed_where_aggregate_refuses(one, change, words):
    plan, cell, results = one
    assert {state.state for state in job_states(plan, results)} == {"done"}
    with edited(results / cell.final_id / "run.json", change):
        with pytest.raises(RecordError, match=words):
            aggregate(plan, results)
        state = next(job for job in job_states(plan, results) if job.id == cell.final_id)
        assert state.state == "failed"
        assert re.search(words, state.note)


@pytest.mark.parametrize("name", ["members", "wall_seconds"])
def test_a_blocks_record_without_an_entry_is_named(one, name):
    plan, cell, results = one
    with edited(results / plan.blocks[0].id / "run.json", without(name)):
        with pytest.raises(RecordError, match=f"without {name}; run `pfrnn train search/"):
            select_cell(plan, cell.selection_id, results)


@pytest.mark.parametrize("chosen", [5, [], {"block_id": []}])
def test_a_damaged_selection_is_named_with_the_runs_own_options(one, chosen):
    plan, cell, results = one
    own = plan._replace(params="params.yaml,mine.yaml")

    def change(selection):
        whole = isinstance(chosen, dict)
        return selection | {"chosen": selection["chosen"] | chosen if whole else chosen}

    with edited(results / cell.selection_id, change):
        cure = f"run `pfrnn select {cell.selection_id} {own.options}` again"
        with pytest.raises(RecordError, match=re.escape(cure)):
            read_selection(own, cell, results)
