"""The reports that stand in the repository follow from the evidence beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfrnn.cli import main
from pfrnn.recorded import read_recorded, whole_plan
from pfrnn.reporting.evidence import read_evidence

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
# Of tier gpu_long, still to be trained (docs/results.md, "Next"): their searches are recorded.
TO_RUN = {
    ("maze18", "gru"),
    ("maze18", "pf_lstm"),
    ("maze18", "pf_gru"),
    ("maze18", "pf_lstm_noresample"),
    ("maze18", "pf_lstm_nobnrelu"),
    ("maze27", "gru"),
}
BOTH = pytest.mark.parametrize("folder", [REPORTS, REPORTS / "gpu_long"], ids=["gpu", "gpu_long"])


def test_tables_figures_claims_and_readme_follow(capsys: pytest.CaptureFixture[str]) -> None:
    found = main(["check", "--reports", str(REPORTS), "--readme", str(ROOT / "README.md")])
    assert found == 0, capsys.readouterr().err


def test_the_longer_tiers_follow_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--reports", str(REPORTS / "gpu_long")]) == 0, capsys.readouterr().err


@BOTH
def test_it_is_of_its_tier_and_holds_its_plan_but_for_what_is_said_to_be_left(folder: Path) -> None:
    tier, to_run = ("gpu", set()) if folder == REPORTS else ("gpu_long", TO_RUN)
    plan = whole_plan(ROOT / "params.yaml", tier)
    recorded = read_recorded(folder, plan)
    left = [cell for cell in plan.cells if cell.final_id not in recorded.finals]
    assert {(cell.dataset, cell.variant) for cell in left} == to_run
    assert recorded.outside == ()


@BOTH
def test_the_page_is_small_enough_to_commit(folder: Path) -> None:
    assert (folder / "index.html").stat().st_size < 4e6


@BOTH
def test_every_row_names_device_commit_and_data(folder: Path) -> None:
    rows = read_evidence(folder).results
    for column in ("device", "commit", "data_state", "data_digest", "n_test"):
        assert rows[column].astype(str).str.len().gt(0).all(), column
    assert not rows["commit"].str.contains("dirty").any()
