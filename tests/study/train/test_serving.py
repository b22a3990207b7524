"""An exported model in memory: what it takes as lengths, and that padding doesn't count."""

from __future__ import annotations

import numpy as np
import pytest

from pfrnn.study.data.prepare import load_prepared
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import run_final
from pfrnn.study.train.serving import export, load_served

from . import toys


@pytest.fixture(scope="module", params=["toy_regression", "toy_classes"])
def world(request, tmp_path_factory):
    """A served PF-LSTM of one epoch, with test inputs and their lengths."""
    folder = tmp_path_factory.mktemp("served")
    study = {"datasets": [request.param], "variants": ["pf_lstm"]}
    plan = toys.study({"study": study, "training": {"max_epochs": 1}})
    places = toys.prepared_places(plan, folder)
    for block in plan.blocks:
        train_block(plan, block.id, places)
    (cell,) = plan.cells
    select_cell(plan, cell.selection_id, places.results)
    run_final(plan, cell.final_id, places)
    export(plan, cell.final_id, places, folder / "model")
    test = load_prepared(places.prepared / plan.prepared_id(request.param)).splits["test"]
    return load_served(folder / "model"), test.x[:4], test.length[:4]


def test_lengths_that_fit(world):
    model, x, length = world
    want = model.predict(x, length)
    assert want.shape[0] == 4
    for same in (length.tolist(), length.astype(np.float64), length[:, None]):
        np.testing.assert_array_equal(model.predict(x, same), want)
    full = np.full(4, x.shape[1])
    np.testing.assert_array_equal(model.predict(x), model.predict(x, full))
    # The bounds themselves; and a length is obeyed.
    assert np.isfinite(model.predict(x, np.ones(4, int))).all()
    last = model.predict(x, np.ones(4, int))[:, -1], model.predict(x)[:, -1]
    assert not np.array_equal(*last)


@pytest.mark.parametrize("wrong", [0, 1000, 2.5, float("nan")])
def test_lengths_that_no_sequence_has(world, wrong):
    model, x, length = world
    lengths = [*length[:3].tolist(), wrong]
    with pytest.raises(ValueError, match=f"length: expected whole numbers from 1 to {x.shape[1]}"):
        model.predict(x, np.array(lengths))
    with pytest.raises(ValueError, match=r"length: expected one for each of 4 sequences, got 3"):
        model.predict(x, length[:3])
