"""The report that stands in the repository follows from the evidence beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfrnn.cli import main
from pfrnn.reporting.evidence import read_evidence

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"


def test_tables_figures_claims_and_readme_follow(capsys: pytest.CaptureFixture[str]) -> None:
    found = main(["check", "--reports", str(REPORTS), "--readme", str(ROOT / "README.md")])
    assert found == 0, capsys.readouterr().err


def test_the_page_is_small_enough_to_commit() -> None:
    assert (REPORTS / "index.html").stat().st_size < 4e6


def test_every_row_names_device_commit_and_data() -> None:
    rows = read_evidence(REPORTS).results
    for column in ("device", "commit", "data_state", "data_digest", "n_test"):
        assert rows[column].astype(str).str.len().gt(0).all(), column
    assert not rows["commit"].str.contains("dirty").any()
