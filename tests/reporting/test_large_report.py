"""The full report: 20,000 tidy rows within a minute and 1 GiB, and small enough to commit."""

import resource
import time
from pathlib import Path

import pytest
import simulated

from pfrnn.reporting.report import write_report


@pytest.mark.slow
def test_twenty_thousand_rows(tmp_path: Path) -> None:
    plan = simulated.study("gpu", variants=tuple(simulated.VARIANTS), size_rules=("fixed", "best"))
    rows = simulated.result_rows(plan, 28)
    assert len(rows) >= 20_000
    results, prepared = simulated.write_tree(tmp_path, plan, rows)
    used = time.process_time()
    page = write_report(results, prepared, plan, tmp_path / "report")
    # One process, one thread: its processor time is its time on an idle machine.
    assert time.process_time() - used < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1024**2  # KiB
    assert page.stat().st_size < 15_000_000
