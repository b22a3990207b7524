"""Learning curves: the thick line is the best of all epochs, or says that it isn't."""

from __future__ import annotations

import pytest
import simulated

from pfrnn.study.report.evidence import Evidence, read_evidence
from pfrnn.study.report.figures.learning import learning_curves
from pfrnn.study.report.report import write_report


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    folder = tmp_path_factory.mktemp("quick")
    plan = simulated.study(datasets=("maze10", "arem"))
    results, prepared = simulated.write_tree(folder, plan, simulated.result_rows(plan, 3))
    write_report(results, prepared, plan, folder / "report")
    return read_evidence(folder / "report")


def test_the_best_so_far_is_of_all_epochs_where_the_evidence_has_it(evidence: Evidence) -> None:
    # Better scores than the ones that were kept.
    whole = evidence._replace(
        histories=evidence.histories.assign(val_best=evidence.histories["val_score"] - 0.5)
    )
    kept = evidence._replace(histories=evidence.histories.assign(val_best=float("nan")))
    for drawn, old in zip(learning_curves(whole), learning_curves(kept), strict=True):
        assert "epochs that were kept" in old.caption
        assert "epochs that were kept" not in drawn.caption
        for variant, lines in drawn.data.items():
            before = old.data[variant]
            assert lines["runs"] == before["runs"]
            last, usual = lines["median_of_best"][-1], before["median_of_best"][-1]
            assert last[0] == usual[0]
            assert last[1] == pytest.approx(usual[1] - 0.5)


def test_a_model_without_it_takes_it_from_the_others(evidence: Evidence) -> None:
    """Else one model's line would be the best of all its epochs, the next one's of some."""
    histories = evidence.histories.copy()
    first = histories["final_id"].iloc[0]
    histories.loc[histories["final_id"] == first, "val_best"] = float("nan")
    captions = [one.caption for one in learning_curves(evidence._replace(histories=histories))]
    assert sum("epochs that were kept" in caption for caption in captions) == 1
