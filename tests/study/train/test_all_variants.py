"""Every variant of the paper goes the whole way once, on tiny data."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from pfrnn.study.evaluate.aggregate import aggregate
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import run_final
from pfrnn.study.variants import FIDELITY, VARIANTS

from . import toys

# Particle numbers of the ablations are the paper's; everything else is tiny.
PATCH = {
    "study": {"variants": list(VARIANTS), "datasets": ["toy_regression"]},
    "grid": {"learning_rate": [0.003]},
    "training": {"max_epochs": 1},
    "evaluation": {"repetitions": 1, "passes": 2, "bootstrap": 100},
    "bayesian": {"prediction_samples": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy_regression", "toy_classes", "maze10"])
@pytest.mark.parametrize("fidelity", ["paper", "authors_code"])
def test_every_variant_fills_its_cell(tmp_path, name, fidelity):
    plan = toys.study(PATCH, {"study": {"datasets": [name]}, "filter": {"fidelity": fidelity}})
    places = toys.prepared_places(plan, tmp_path)
    for block in plan.blocks:
        train_block(plan, block.id, places)
    for cell in plan.cells:
        select_cell(plan, cell.selection_id, places.results)
        run_final(plan, cell.final_id, places)
        record = json.loads((places.results / cell.final_id / "run.json").read_text())
        assert record["variant"] == cell.trained
    done = aggregate(plan, places.results)
    assert done.absent == ()
    with (places.results / "results.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert {row["variant"] for row in rows} == set(VARIANTS)
    assert all(np.isfinite(float(row["value"])) for row in rows)
    assert {row["fidelity"] for row in rows} == {fidelity}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy_regression", "toy_classes", "maze10"])
def test_every_row_between_text_and_release_fills_its_cell(tmp_path, name):
    rows = {"study": {"datasets": [name], "variants": ["pf_lstm", *FIDELITY]}}
    plan = toys.study(PATCH, rows)
    places = toys.prepared_places(plan, tmp_path)
    for block in plan.blocks:
        train_block(plan, block.id, places)
    values = {}
    for cell in plan.cells:
        select_cell(plan, cell.selection_id, places.results)
        run_final(plan, cell.final_id, places)
    assert aggregate(plan, places.results).finals == len(FIDELITY)
    with (places.results / "results.csv").open(newline="") as source:
        for row in csv.DictReader(source):
            values.setdefault(row["variant"], {})[row["metric"], row["repetition"]] = row["value"]
    assert set(values) == {"pf_lstm", *FIDELITY}
    assert all(np.isfinite(float(value)) for row in values.values() for value in row.values())
    assert values["pf_lstm_paper"] == values["pf_lstm"]
    # Every switch reaches the training: no two others are alike. The release has no loss of its
    # own for classes.
    losses = {"loss", "time_weights", "sums"} if name == "toy_classes" else set()
    classes = {f"pf_lstm_paper_{loss}" for loss in losses}
    scores = {cell.variant: history_of(places.results / cell.final_id) for cell in plan.cells}
    for loss in classes:
        assert scores[loss] == scores["pf_lstm"]
    if name != "toy_classes":
        assert len(set(scores.values())) == len(FIDELITY)


def history_of(final):
    """The training losses of a final's epochs: what any switch of the training moves."""
    with (final / "history.csv").open(newline="") as source:
        return tuple(row["train_loss"] for row in csv.DictReader(source))


def test_a_small_ablation_shares_the_main_variants_final():
    """Four particles are the main variant's number here: P-variants of others stay apart."""
    plan = toys.study(PATCH, {"sizes": {"other": {"particles": 5}}})
    cells = {cell.variant: cell for cell in plan.cells}
    assert cells["pf_lstm_p5"].final_id == cells["pf_lstm"].final_id
    assert cells["pf_lstm_p10"].final_id != cells["pf_lstm"].final_id
    assert len({cell.final_id for cell in plan.cells}) == len(plan.cells) - 1
