"""The one-at-a-time table between the paper's text and the authors' release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulated

from pfrnn.study.evaluate.statistics import t_interval
from pfrnn.study.report.fidelity import fidelity_frame, fidelity_sentences, shown_fidelity
from pfrnn.study.report.results import Results
from pfrnn.study.variants import FIDELITY


def results_of(
    tmp_path: Path, names: tuple[str, ...], tier: str = "gpu", lost: Any = ()
) -> tuple[Results, list[dict[str, Any]]]:
    """The plan's rows and some of the family's, those moved in their dropout three times larger."""
    plan = simulated.study(tier, ("maze10", "air"), ("lstm", "pf_lstm"))
    plan = plan._replace(own_variants={"maze10": ["lstm", "pf_lstm", *FIDELITY]})
    rows = simulated.result_rows(plan._replace(datasets=("maze10",), variants=names))
    for row in rows:
        if row["variant"] == "pf_lstm_paper_dropout":
            row["value"] *= 3.0
    rows = [row for row in rows if (row["variant"], row["repetition"]) not in lost]
    return simulated.results_of(tmp_path, plan, simulated.result_rows(plan) + rows), rows


def test_differences_are_paired_by_repetition(tmp_path: Path) -> None:
    # Two rows that lack another repetition each: four pairs are left, not five of six.
    lost = {("pf_lstm_paper", 1), ("pf_lstm_paper_dropout", 4)}
    results, rows = results_of(tmp_path, tuple(FIDELITY), lost=lost)
    found = fidelity_frame(results).set_index("variant")
    assert list(found.index) == list(FIDELITY)
    values = {(row["variant"], row["metric"], row["repetition"]): row["value"] for row in rows}
    for metric, column in (("last_step_mse", ""), ("all_steps_mse", "all_steps_")):
        d = [
            values["pf_lstm_paper_dropout", metric, r] - values["pf_lstm_paper", metric, r]
            for r in (0, 2, 3, 5)
        ]
        row, interval = found.loc["pf_lstm_paper_dropout"], t_interval(d, 0.95)
        assert interval is not None
        assert row[f"{column}difference"] == pytest.approx(np.mean(d))
        assert row[f"{column}difference_low"] == pytest.approx(interval.low)
    assert row["pairs"] == 4
    assert np.isnan(row["release_difference"])
    assert np.isnan(found.loc["pf_lstm_paper", "difference"])
    assert not np.isnan(found.loc["pf_lstm_release_loss", "release_difference"])
    assert set(found["paper"]) == {"0.10"}
    assert tuple(found.loc["pf_lstm_paper_batch_norm", ["switch", "value"]]) == (
        "batch_norm",
        "particle_slot",
    )


def test_the_section_says_which_switch_matters_and_what_is_missing(tmp_path: Path) -> None:
    names = tuple(name for name in FIDELITY if name != "pf_lstm_paper_loss")
    results, _ = results_of(tmp_path, names)
    frame = fidelity_frame(results)
    said = " ".join(fidelity_sentences(frame, results))
    assert "leaves zero out for" in said
    assert "PF-LSTM (text + dropout) (+0.19" in said
    outside, _, inside = said.partition("lies outside")[2].partition(", inside")
    assert "PF-LSTM (text + dropout)" in outside
    assert "PF-LSTM (text)" in inside
    assert "Missing: PF-LSTM (text + loss) on maze10: no result yet." in said
    shown = shown_fidelity(frame).set_index("row")
    assert shown.loc["PF-LSTM (text + loss)", "ours"] == "–"
    reduced, _ = results_of(tmp_path / "quick", names, "quick")
    assert "no conclusion" in " ".join(fidelity_sentences(fidelity_frame(reduced), reduced))
