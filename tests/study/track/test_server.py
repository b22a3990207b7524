"""Imports into a real tracking server: four at once, and the server killed among them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tracking_records import write_search

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[3]
AT_ONCE, MEMBERS = 4, 20


class Server:
    """``mlflow server`` on SQLite; it can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--backend-store-uri", "sqlite:///mlflow.db", "--port", str(self.port)]
        command += ["--artifacts-destination", "artifacts"]
        mine = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=os.environ | mine, start_new_session=True, **quiet
        )
        until = time.monotonic() + 180
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.3)
        raise RuntimeError("the MLflow server does not answer")

    def kill(self) -> None:
        """SIGKILL the server and its workers, as a crash would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    made.start()
    yield made
    made.kill()


def start_import(folder: Path, uri: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pfrnn", "mlflow-import", "--tier", "quick"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": uri},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def found(uri: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("pfrnn/air")
    return (
        list(client.search_runs([experiment.experiment_id], max_results=1000)) if experiment else []
    )


def test_four_imports_and_a_server_that_dies(server: Server, tmp_path: Path) -> None:
    folders = [tmp_path / f"machine{number}" for number in range(AT_ONCE)]
    for number, folder in enumerate(folders):
        block = write_search(folder / "results" / "quick", MEMBERS, epochs=40)
        block.rename(block.with_name(f"h{number}-k0-b32-0123456789"))
    running = [start_import(folder, server.uri) for folder in folders]
    until = time.monotonic() + 300
    while time.monotonic() < until and len(found(server.uri)) < AT_ONCE:
        time.sleep(0.3)
    server.kill()
    outputs = [process.communicate(timeout=600)[0] for process in running]
    codes = [process.returncode for process in running]
    assert any(codes), outputs
    for code, output in zip(codes, outputs, strict=True):
        assert not code or "no MLflow store answers" in output

    server.start()
    again = [start_import(folder, server.uri) for folder in folders]
    outputs = [process.communicate(timeout=600)[0] for process in again]
    assert [process.returncode for process in again] == [0] * AT_ONCE, outputs
    runs = found(server.uri)
    assert len(runs) == AT_ONCE * (1 + MEMBERS)
    assert len({(run.data.tags["pfrnn.key"], run.info.run_name, run.data.params.get("seed"))
                for run in runs}) == len(runs)  # fmt: skip
    assert all(run.info.status == "FINISHED" for run in runs)
