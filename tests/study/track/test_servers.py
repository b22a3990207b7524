"""Imports into a real tracking server: eight at once, and the server killed among them.

Takes minutes: run by ``make test-all``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow_server import Postgres, Server
from tracking_records import write_block

from pfrnn.study.track.jobs import Job, Member, read_job, record_folders

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[3]
AT_ONCE, BLOCKS, MEMBERS, EPOCHS = 8, 3, 3, 40


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server on each of the two databases."""
    cluster = None
    backend = f"sqlite:///{tmp_path / 'mlflow.db'}"
    if request.param == "postgresql":
        if absent := Postgres.absent():
            pytest.skip(absent)
        cluster = Postgres()
        backend = cluster.start()
    made = Server(backend, tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.kill()
        if cluster is not None:
            cluster.stop()


def _import(folder: Path, uri: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "MLFLOW_TRACKING_URI": uri,
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "pfrnn", "mlflow-import", "--tier", "quick"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _all(folders: list[Path], uri: str) -> tuple[list[int], list[str]]:
    running = [_import(folder, uri) for folder in folders]
    outputs = [process.communicate(timeout=600)[0] for process in running]
    return [process.returncode for process in running], outputs


def _found(uri: str) -> dict[tuple[str, str], Any]:
    """Every run of the store by (job key, run name)."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("air")
    assert experiment is not None
    runs = list(client.search_runs([experiment.experiment_id], max_results=1000))
    found = {(run.data.tags["pfrnn.key"], run.info.run_name): run for run in runs}
    assert len(found) == len(runs), "a run stands twice"
    return found


def _expected(folders: list[Path]) -> dict[tuple[str, str], tuple[Job, Member | None]]:
    wanted: dict[tuple[str, str], tuple[Job, Member | None]] = {}
    for folder in folders:
        results = folder / "results" / "quick"
        for record in record_folders(results):
            job = read_job(record, results)
            wanted[job.key, job.key.split("/", 3)[3]] = (job, None)
            wanted |= {(job.key, member.name): (job, member) for member in job.members}
    return wanted


def test_eight_imports_and_a_server_that_dies(server: Server, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    folders = [tmp_path / f"machine{number}" for number in range(AT_ONCE)]
    for number, folder in enumerate(folders):
        for block in range(BLOCKS):
            name = f"h{number}-k0-b{block}-0123456789"
            write_block(folder / "results" / "quick", "air", name, MEMBERS, EPOCHS)
    running = [_import(folder, server.uri) for folder in folders]
    until = time.monotonic() + 300
    while time.monotonic() < until:
        time.sleep(0.5)
        try:
            if len(_found(server.uri)) >= AT_ONCE:
                break
        except AssertionError:
            continue
    server.kill()
    outputs = [process.communicate(timeout=600)[0] for process in running]
    codes = [process.returncode for process in running]
    assert any(codes), outputs
    for code, output in zip(codes, outputs, strict=True):
        if code:
            assert "records on disk are complete, import them later" in output.splitlines()[-1]

    server.start()
    codes, outputs = _all(folders, server.uri)
    assert codes == [0] * AT_ONCE, outputs
    wanted, found = _expected(folders), _found(server.uri)
    assert set(found) == set(wanted)
    assert len(found) == AT_ONCE * BLOCKS * (1 + MEMBERS)
    for key, (job, member) in wanted.items():
        run = found[key]
        expected = job.parameters if member is None else member.parameters
        assert run.data.params == dict(expected)
    client = MlflowClient(tracking_uri=server.uri)
    sample = [key for key, (_, member) in wanted.items() if member is not None][::5]
    for key in sample:
        member = wanted[key][1]
        assert member is not None
        for name, points in member.curves.items():
            history = client.get_metric_history(found[key].info.run_id, name)
            assert tuple((point.step, point.value) for point in history) == points
        values = found[key].data.metrics
        assert {name: values[name] for name in member.metrics} == dict(member.metrics)
    before = {run.info.run_id for run in found.values()}
    codes, outputs = _all(folders[:2], server.uri)
    assert codes == [0, 0]
    assert all("0 jobs imported (0 runs), 3 unchanged" in output for output in outputs)
    assert {run.info.run_id for run in _found(server.uri).values()} == before
