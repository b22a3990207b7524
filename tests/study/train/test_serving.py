"""An exported model in memory: what it takes as lengths, and that padding doesn't count."""

from __future__ import annotations

import numpy as np
import pytest

from pfrnn.study.data.prepare import load_prepared
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import run_final
from pfrnn.study.train.serving import checked_lengths, export, load_served

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


@pytest.mark.parametrize("wrong", [0, -1, "T + 1", 1000, 2.5, float("nan")])
def test_lengths_that_no_sequence_has(world, wrong):
    model, x, length = world
    steps = x.shape[1]
    value = steps + 1 if wrong == "T + 1" else wrong
    lengths = [*length[:2].tolist(), value, 0]
    words = rf"length: expected whole numbers of steps from 1 to the {steps} that x has, got "
    with pytest.raises(ValueError, match=rf"{words}{value}(\.0)? for sequence 2; pad x"):
        model.predict(x, np.array(lengths))


@pytest.mark.parametrize("given", [[3], [[3, 3]], 3, [3, 3, 3]])
def test_another_number_of_lengths(given):
    with pytest.raises(ValueError, match=r"length: expected one .* each of the 2 .*, got shape \("):
        checked_lengths(np.array(given), 2, 5)


@pytest.mark.parametrize("given", [[True, True], ["3", "3"]])
def test_what_is_no_number(given):
    with pytest.raises(ValueError, match="length: expected whole numbers, got"):
        checked_lengths(np.array(given), 2, 5)
