"""The reports that stand in the repository follow from the evidence beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfrnn.study.cli import main
from pfrnn.study.data.registry import dataset
from pfrnn.study.recorded import read_recorded, whole_plan
from pfrnn.study.report.evidence import read_evidence

ROOT = Path(__file__).parents[3]
REPORTS = ROOT / "reports"
BOTH = pytest.mark.parametrize("folder", [REPORTS, REPORTS / "gpu_long"], ids=["gpu", "gpu_long"])


def test_tables_figures_claims_and_readme_follow(capsys: pytest.CaptureFixture[str]) -> None:
    found = main(["check", "--reports", str(REPORTS), "--readme", str(ROOT / "README.md")])
    assert found == 0, capsys.readouterr().err


def test_the_longer_tiers_follow_too(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gpu_long", "study"):
        assert main(["check", "--reports", str(REPORTS / name)]) == 0, capsys.readouterr().err


@BOTH
def test_it_is_of_its_tier_and_holds_its_whole_plan(folder: Path) -> None:
    plan = whole_plan(ROOT / "params.yaml", "gpu" if folder == REPORTS else "gpu_long")
    recorded = read_recorded(folder, plan)
    assert [cell.final_id for cell in plan.cells if cell.final_id not in recorded.finals] == []
    assert recorded.outside == ()


@BOTH
def test_the_page_is_small_enough_to_commit(folder: Path) -> None:
    assert (folder / "index.html").stat().st_size <= 2e6


@BOTH
def test_every_row_names_device_commit_and_data(folder: Path) -> None:
    evidence = read_evidence(folder)
    rows = evidence.results
    for column in ("device", "commit", "data_state", "data_digest", "n_test"):
        assert rows[column].astype(str).str.len().gt(0).all(), column
    assert not rows["commit"].str.contains("dirty").any()


@BOTH
def test_no_values_of_a_set_that_may_not_be_passed_on(folder: Path) -> None:
    for name, picture in read_evidence(folder).sequences.items():
        if not dataset(name).card.redistributable and picture["kind"] == "regression":
            assert picture["differences"]
            assert all(line[0] == [0.0] for line in picture["lines"])
