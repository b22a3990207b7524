"""The model of a step's time follows from the committed measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pfrnn.study.rates import COMPILED, Work, step_seconds
from pfrnn.study.variants import variant

MEASURED = json.loads((Path(__file__).parents[2] / "bench" / "steps.json").read_text())


@pytest.mark.parametrize("name", ["pf_lstm", "pf_gru"])
def test_filters(name: str) -> None:
    rows = [
        row
        for row in MEASURED["steps"]
        if (row["cell"], row["way"], row["precision"]) == (name, "fused", "tf32")
        and row["steps"] == 100
    ]
    assert {row["members"] for row in rows} == {1, 12, 36}
    for row in rows:
        work = Work(row["members"], row["batch"], row["steps"], row["hidden"], row["particles"])
        assert 1000 * step_seconds(variant(name), work) == pytest.approx(row["ms"], rel=0.03)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_plain_networks(cell: str) -> None:
    rows = {
        row["members"]: row
        for row in MEASURED["rnn"]
        if row["cell"] == cell and "kernels" in row["way"]
    }
    assert rows.keys() == {1, 6, 36}
    for members, row in rows.items():
        predicted = 1000 * step_seconds(variant(cell), Work(members, 64, 100, row["hidden"]))
        if members == 1:
            assert row["ms"] < predicted < 1.17 * row["ms"]
        else:
            assert predicted == pytest.approx(row["ms"], rel=0.03)


def test_a_filter_that_the_kernels_refuse_runs_as_the_probe_did() -> None:
    """Compiled, in one graph: milliseconds of a step by models, from an early probe."""
    for members, measured in ((1, 10.8), (4, 18.5), (12, 37.7), (36, 91.0)):
        work = Work(members, 64, 100, 64, 30)
        seconds = step_seconds(variant("pf_lstm"), work, kernels=False)
        assert 1000 * seconds == pytest.approx(measured, rel=0.1)
        assert seconds > 1.9 * step_seconds(variant("pf_lstm"), work)
    plain = Work(6, 64, 100, 80)
    assert step_seconds(variant("lstm"), plain, False) == step_seconds(variant("lstm"), plain)


def test_a_wider_filter_than_the_kernels_take_is_slower_by_more_than_its_width() -> None:
    narrow, wide = (
        step_seconds(variant("pf_lstm"), Work(12, 64, 100, hidden, 30)) for hidden in (128, 256)
    )
    assert wide / narrow > 4 * COMPILED * 0.9
