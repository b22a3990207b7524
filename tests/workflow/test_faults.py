"""What the finished workflow makes of two runs at once, moved folders, wrong clocks, lost files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pfrnn.study.report.matrices import rebuild_command
from pfrnn.study.runlock import hold

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


def test_two_snakemakes_in_one_folder(finished) -> None:
    """The second real run is refused with the first one's process id; a dry run isn't."""
    handle = hold(finished.folder)
    assert handle is not None
    try:
        refused = finished.snakemake("--cores", "1")
        assert refused.returncode != 0
        assert "a run is alive in" in refused.stdout
        assert f"process {os.getpid()}" in refused.stdout
        assert finished.plan() == {}
    finally:
        os.close(handle)


def test_a_killed_runs_locks_heal(finished) -> None:
    lock = finished.folder / ".snakemake" / "locks" / "0.output.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("mlflow.db\nresults/smoke/results.csv\n")
    assert finished.plan() == {}
    assert lock.exists()  # a dry run changes nothing
    done = finished.snakemake("--cores", "1")
    assert done.returncode == 0, done.stdout
    assert "a run was killed here: removed its 1 stale locks" in done.stdout
    assert not lock.exists()


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


def test_a_deleted_mlflow_store_is_built_again(finished) -> None:
    with moved(finished.folder / "mlflow.db"):
        assert finished.plan() == {"mlflow_store": 1, "mlflow_import": 1}


def test_an_emptied_selection_is_selected_again_and_no_job_follows(finished, tmp_path) -> None:
    copy = finished.again(tmp_path / "copy")
    (path,) = copy.folder.glob("results/smoke/selection/maze10/gru-fixed-*.json")
    whole = path.read_bytes()
    path.write_bytes(b"")
    refused = copy.snakemake("-n")
    assert refused.returncode != 0
    name = path.relative_to(copy.folder / "results" / "smoke").as_posix()
    assert f"`pfrnn select {name}" in refused.stdout
    done = copy.shell(f"pfrnn select {name} --tier smoke")
    assert done.returncode == 0, done.stdout
    assert path.read_bytes() == whole
    assert copy.plan() == {}


def test_the_reports_command_trains_a_finished_cell_again(finished, tmp_path: Path) -> None:
    """A job that is merely forced gets its records back, and the terminal says so."""
    copy = finished.again(tmp_path / "copy")
    results = Path("results", "smoke")
    (record,) = (copy.folder / results).glob("final/maze10/gru-fixed-*/run.json")
    final = record.parent.relative_to(copy.folder / results).as_posix()
    seal, target = record.parent / ".finished" / "seal.json", results / final / "test.csv"
    sealed = seal.stat().st_ino, seal.stat().st_mtime_ns
    forced = copy.snakemake("--cores", "1", "--forcerun", "finalise", "--", str(target))
    assert forced.returncode == 0, forced.stdout
    assert f"put back: {final}: finished before" in forced.stdout
    assert f"to train it again, first remove {results / final}\n" in forced.stdout
    assert (seal.stat().st_ino, seal.stat().st_mtime_ns) == sealed

    command = rebuild_command("smoke", final)
    before = (copy.folder / target).read_bytes()
    done = copy.shell(command)
    assert done.returncode == 0, done.stdout
    assert "put back" not in done.stdout
    assert (seal.stat().st_ino, seal.stat().st_mtime_ns) != sealed
    assert (copy.folder / target).read_bytes() == before

    # A folder whose final the plan hasn't, as an own model's without its study: it stays.
    other = record.parent.with_name("mgu-fixed-0123456789")
    shutil.copytree(record.parent, other)
    failed = copy.shell(rebuild_command("smoke", f"final/maze10/{other.name}"))
    assert failed.returncode != 0, failed.stdout
    assert (other / "test.csv").read_bytes() == before
