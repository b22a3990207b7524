"""What the finished workflow makes of two runs at once, moved folders, wrong clocks, lost files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pfrnn.study.report.sections import rebuild_command

pytestmark = pytest.mark.slow


@contextmanager
def moved(path: Path) -> Iterator[Path]:
    """Take a file or folder away for a while."""
    aside = path.with_name(path.name + "-aside")
    path.rename(aside)
    try:
        yield aside
    finally:
        aside.rename(path)


def test_the_folder_may_move(finished, tmp_path: Path) -> None:
    assert finished.again(tmp_path / "elsewhere").plan() == {}


def test_moved_results_are_missed_and_found_again(finished) -> None:
    with moved(finished.folder / "results"):
        jobs = finished.plan()
    assert (jobs["train"], jobs["finalise"], jobs["report"]) == (4, 4, 1)
    assert "prepare" not in jobs
    assert finished.plan() == {}


def test_a_clock_that_jumps_back_reruns_nothing(finished) -> None:
    """Inputs from the future, outputs older than them: content decides."""
    tomorrow = time.time() + 86400
    inputs = [
        path
        for folder in ("data/prepared", "results/smoke/selection", "results/smoke/search")
        for path in (finished.folder / folder).rglob("*")
        if path.is_file()
    ]
    before = {path: path.stat() for path in inputs}
    assert len(inputs) > 12
    for path in inputs:
        os.utime(path, (tomorrow, tomorrow))
    try:
        assert finished.plan() == {}
    finally:
        for path, stat in before.items():
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_an_import_that_no_store_took_is_not_recorded_as_made(finished, tmp_path) -> None:
    copy = finished.again(tmp_path / "copy")
    (copy.folder / "results" / "smoke" / "mlflow.json").unlink()
    away = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = copy.snakemake("--cores", "1", **away)
    assert done.returncode == 0, done.stdout
    assert "not imported: " in done.stdout
    assert copy.plan() == {"mlflow_import": 1}


def test_a_forced_job_exits_at_once_and_the_reports_command_trains(finished, tmp_path) -> None:
    copy = finished.again(tmp_path / "copy")
    results = Path("results", "smoke")
    (record,) = (copy.folder / results).glob("final/maze10/gru-fixed-*/run.json")
    final = record.parent.relative_to(copy.folder / results).as_posix()
    target = results / final / "test.csv"
    before = record.read_bytes()
    # Also after a kill that left only Snakemake's note missing, and its locks behind.
    (record.parent / "finished").unlink()
    locks = copy.folder / ".snakemake" / "locks"
    locks.mkdir(exist_ok=True)
    (locks / "0.output.lock").write_text(f"{target}\n")
    refused = copy.snakemake("--cores", "1", "--", str(target.with_name("finished")))
    assert refused.returncode != 0
    assert "--unlock" in refused.stdout
    assert copy.snakemake("--unlock").returncode == 0
    forced = copy.snakemake("--cores", "1", "--forcerun", "finalise", "--", str(target))
    assert forced.returncode == 0, forced.stdout
    assert f"finished before: {final}; to train it again, remove {results / final}" in forced.stdout
    assert record.read_bytes() == before
    scores = (copy.folder / target).read_bytes()
    done = copy.shell(rebuild_command("smoke", final))
    assert done.returncode == 0, done.stdout
    assert "finished before" not in done.stdout
    assert record.read_bytes() != before
    assert (copy.folder / target).read_bytes() == scores
