"""The import against a real MLflow on a SQLite file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tracking_records import FINAL, SEARCH, write_final, write_search

from pfrnn.study.cli import main

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with records, imported once by the command line."""
    where = tmp_path_factory.mktemp("tracking")
    write_search(where / "results" / "quick", members=3, epochs=100)
    write_final(where / "results" / "quick")
    before = Path.cwd()
    os.chdir(where)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("MLFLOW_TRACKING_URI", raising=False)
            assert main(["mlflow-import", "--tier", "quick", "--out", "done.json"]) == 0
            yield where
    finally:
        os.chdir(before)


def _runs(kind: str) -> list[object]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri="sqlite:///mlflow.db")
    experiment = client.get_experiment_by_name("air")
    assert experiment is not None
    return list(
        client.search_runs([experiment.experiment_id], f"tags.kind = '{kind}'", max_results=100)
    )


def test_parents_children_values_and_curves(folder: Path) -> None:
    from mlflow import MlflowClient

    runs = _runs("search")
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert (len(parents), len(children)) == (1, 3)
    assert parents[1].data.tags["job"] == SEARCH
    assert parents[1].data.params["parameters.hidden_size"] == "80"
    assert {run.data.params["learning_rate"] for run in children} == {"0.0001", "0.0003", "0.0005"}
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parents[1].info.run_id}
    client = MlflowClient(tracking_uri="sqlite:///mlflow.db")
    curve = client.get_metric_history(children[0].info.run_id, "curve/train_loss")
    assert len(curve) == 30
    assert [(p.step, p.value) for p in curve if p.step in (1, 100)] == [(1, 9.0), (100, -90.0)]
    finals = [run for run in _runs("final") if "test/rmse" in run.data.metrics]
    assert sorted(run.data.metrics["test/rmse"] for run in finals) == [3.0, 3.5]


def test_importing_again_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {run.info.run_id for kind in ("search", "final") for run in _runs(kind)}
    summary = (folder / "done.json").read_text()
    assert main(["mlflow-import", "--tier", "quick", "--out", "done.json"]) == 0
    assert "0 jobs imported (0 runs), 2 unchanged" in capsys.readouterr().out
    assert {run.info.run_id for kind in ("search", "final") for run in _runs(kind)} == before
    assert (folder / "done.json").read_text() == summary


def test_a_half_written_job_is_replaced(folder: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri="sqlite:///mlflow.db")
    (parent,) = (run for run in _runs("final") if "mlflow.parentRunId" not in run.data.tags)
    client.delete_tag(parent.info.run_id, "pfrnn.complete")
    assert main(["mlflow-import", "--tier", "quick"]) == 0
    finals = _runs("final")
    assert len(finals) == 3
    assert parent.info.run_id not in {run.info.run_id for run in finals}
    assert {run.data.tags["job"] for run in finals} == {FINAL}


def test_two_imports_at_once_into_a_fresh_store(folder: Path, tmp_path: Path) -> None:
    write_search(tmp_path / "results" / "quick")
    write_final(tmp_path / "results" / "quick")
    command = [sys.executable, "-m", "pfrnn", "mlflow-import", "--tier", "quick"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    outputs = sorted(process.communicate(timeout=300)[0].decode() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0].startswith("results/quick: 0 jobs imported (0 runs), 2 unchanged")
    assert outputs[1].startswith("results/quick: 2 jobs imported (6 runs), 0 unchanged")


def test_a_server_that_is_down_is_an_error_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert main(["mlflow-import", "--tier", "quick"]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "no MLflow store answers at http://127.0.0.1:9" in last
    assert "records on disk are complete" in last


def test_the_workflow_goes_on_without_the_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    options = ["--or-later", "--out", "later.json"]
    assert main(["mlflow-import", "--tier", "quick", *options]) == 0
    assert "not imported: no MLflow store answers" in capsys.readouterr().err
    assert (folder / "later.json").read_text() == (folder / "done.json").read_text()


def test_a_deleted_store_is_rebuilt(folder: Path) -> None:
    def everything() -> set[tuple[object, ...]]:
        return {
            (
                run.info.run_name,
                run.data.tags["job"],
                *sorted(run.data.params.items()),
                *sorted(run.data.metrics.items()),
            )
            for kind in ("search", "final")
            for run in _runs(kind)
        }

    before = everything()
    (folder / "mlflow.db").unlink()
    assert main(["mlflow-import", "--tier", "quick"]) == 0
    assert everything() == before


def test_watching_shows_a_block_in_training(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    record = write_search(tmp_path / "results" / "quick", members=2, epochs=4)
    run = (record / "run.json").read_text()
    (record / "run.json").unlink()
    # First the store: its making must not meet another connection.
    monkeypatch.chdir(tmp_path)
    assert main(["mlflow-import", "--tier", "quick", "--create-store"]) == 0
    command = [sys.executable, "-m", "pfrnn", "mlflow-import", "--tier", "quick", "--watch", "1"]
    watching = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})

    def children(status: str) -> list[object]:
        client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("air")
        if experiment is None:
            return []
        query = f"attributes.status = '{status}' and attributes.run_name LIKE 'member%'"
        return list(client.search_runs([experiment.experiment_id], query))

    def wait_for(status: str) -> list[object]:
        until = time.monotonic() + 120
        while time.monotonic() < until and len(children(status)) < 2:
            time.sleep(1)
        return children(status)

    try:
        assert len(wait_for("RUNNING")) == 2
        (record / "run.json").write_text(run)
        assert len(wait_for("FINISHED")) == 2
        assert children("RUNNING") == []
    finally:
        watching.terminate()
        watching.wait()


def test_an_absent_folder_is_a_usage_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mlflow-import", "--results", "results/none"]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_without_a_tier_all_tiers_are_imported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mlflow-import"]) == 0
    assert capsys.readouterr().out.startswith("results/quick: 0 jobs imported (0 runs), 2 unch")
