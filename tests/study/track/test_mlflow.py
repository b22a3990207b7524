"""Imports of run records into a real MLflow store on a SQLite file."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tracking_records import SEARCH, write_final, write_search

from pfrnn.study.cli import main

ROOT = Path(__file__).parents[3]
IMPORT = ["mlflow-import", "--tier", "quick"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with records, imported once by the command line."""
    where = tmp_path_factory.mktemp("tracking")
    write_search(where / "results" / "quick", members=3, epochs=100)
    write_final(where / "results" / "quick")
    before = Path.cwd()
    os.chdir(where)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("MLFLOW_TRACKING_URI", raising=False)
            assert main([*IMPORT, "--out", "done.json"]) == 0
    finally:
        os.chdir(before)
    return where


@pytest.fixture
def folder(imported: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same, as the working folder; the store is put back afterwards."""
    monkeypatch.chdir(imported)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    kept = {
        name: (imported / name).read_bytes()
        for name in ("mlflow.db", f"results/quick/{SEARCH}/members.csv")
    }
    yield imported
    for name, content in kept.items():
        (imported / name).write_bytes(content)


def client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri="sqlite:///mlflow.db")


def runs(query: str = "", name: str = "pfrnn/air") -> list[Any]:
    experiment = client().get_experiment_by_name(name)
    return list(client().search_runs([experiment.experiment_id], query, max_results=100))


def test_what_a_search_shows(folder: Path) -> None:
    found = runs("tags.stage = 'search'")
    (parent,) = (run for run in found if "mlflow.parentRunId" not in run.data.tags)
    assert parent.info.run_name == "LSTM, air, search (h80-k0-b32)"
    assert parent.data.params == {"hidden_size": "80", "particles": "0", "batch_size": "32"}
    assert parent.data.metrics == {"val_score": 1.0, "minutes": 2.0}
    tags = {"set": "air", "variant": "lstm", "tier": "quick", "commit": "abc", "job": SEARCH}
    assert tags.items() <= parent.data.tags.items()
    (data,) = parent.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("air", "d1")
    children = [run for run in found if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    names = {run.info.run_name for run in children}
    assert names == {f"learning rate {lr}, clip 3.0, L2 0.001" for lr in (0.0001, 0.0003, 0.0005)}
    curve = client().get_metric_history(children[0].info.run_id, "curve/train_loss")
    assert len(curve) == 30
    assert [(p.step, p.value) for p in curve if p.step in (1, 100)] == [(1, 9.0), (100, -90.0)]
    experiment = client().get_experiment(parent.info.experiment_id)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert "benzene" in experiment.tags["mlflow.note.content"]


def test_what_a_final_shows(folder: Path) -> None:
    (parent,) = runs("attributes.run_name = 'PF-LSTM, air, final'")
    metrics = {"test": 3.25, "test_sd": 0.125**0.5, "test/rmse": 3.25, "test/rmse_sd": 0.125**0.5}
    assert {key: parent.data.metrics[key] for key in metrics} == pytest.approx(metrics)
    assert parent.data.params["learning_rate"] == "0.0001"
    (first, *_) = client().get_metric_history(parent.info.run_id, "curve/train_loss")
    assert (first.step, first.value) == (1, 9.0)
    children = runs("tags.stage = 'final' and metrics.`test/rmse` > 0 and params.seed != ''")
    assert {run.info.run_name for run in children} == {
        "repetition 0, seed 7", "repetition 1, seed 8"
    }  # fmt: skip
    assert sorted(run.data.metrics["test/rmse"] for run in children) == [3.0, 3.5]


def test_importing_again_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {run.info.run_id for run in runs()}
    assert main(["mlflow-import", "--out", "again.json"]) == 0
    assert "0 jobs imported (0 runs), 2 unchanged" in capsys.readouterr().out
    assert {run.info.run_id for run in runs()} == before
    assert (folder / "again.json").read_text() == (folder / "done.json").read_text()


def test_changed_and_half_written_jobs_are_replaced(folder: Path) -> None:
    final = runs("attributes.run_name = 'PF-LSTM, air, final'")[0]
    client().delete_tag(final.info.run_id, "pfrnn.complete")
    table = folder / "results" / "quick" / SEARCH / "members.csv"
    table.write_text(table.read_text().replace(",1.0,", ",0.75,"))
    assert main(IMPORT) == 0
    assert len(runs()) == 4 + 3
    assert final.info.run_id not in {run.info.run_id for run in runs()}
    (parent,) = runs("attributes.run_name LIKE 'LSTM, air, search%'")
    assert parent.data.metrics["val_score"] == 0.75


def test_a_job_in_training_is_shown_until_it_has_finished(folder: Path) -> None:
    job = folder / "results" / "quick" / SEARCH
    record, table = (job / "run.json").read_text(), (job / "members.csv").read_text()
    for name in ("run.json", "members.csv"):
        (job / name).unlink()
    try:
        assert main(IMPORT) == 0
        assert len(runs("attributes.status = 'RUNNING'")) == 1 + 3
        names = {run.info.run_name for run in runs("tags.status = 'running'")}
        assert {"member 0", "member 1", "member 2"} < names
    finally:
        (job / "run.json").write_text(record)
        (job / "members.csv").write_text(table)
    assert main(IMPORT) == 0
    assert runs("attributes.status = 'RUNNING'") == []


def test_an_experiment_that_was_deleted_is_restored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = client().get_experiment_by_name("pfrnn/air")
    client().delete_experiment(experiment.experiment_id)
    assert main(IMPORT) == 0
    output = capsys.readouterr()
    assert "pfrnn/air: this experiment had been deleted in MLflow; it is restored" in output.err
    assert "2 unchanged" in output.out
    assert len(runs()) == 7


def test_in_a_renamed_folder_the_index_is_built_again(folder: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    moved = Path(shutil.copytree(folder, tmp_path / "renamed"))
    # Another process: MLflow remembers where it has opened a store.
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pfrnn", *IMPORT]
    done = subprocess.run(
        command, cwd=moved, env=environment, capture_output=True, text=True, check=True
    )
    assert f"lie in {folder}/mlruns/1; it is built again in this folder" in done.stderr
    assert "2 jobs imported (7 runs)" in done.stdout
    store = MlflowClient(tracking_uri=f"sqlite:///{moved}/mlflow.db")
    experiment = store.get_experiment_by_name("pfrnn/air")
    assert experiment.artifact_location.startswith(str(moved))
    assert (moved / "mlruns" / experiment.experiment_id).is_dir()


def test_a_stores_failure_is_called_what_it_is(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failure(uri: str, *options: str) -> str:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert main([*IMPORT, *options]) == 1
        return capsys.readouterr().err

    newer = f"sqlite:///{shutil.copy('mlflow.db', tmp_path / 'newer.db')}"
    with sqlite3.connect(tmp_path / "newer.db") as store:
        store.execute("UPDATE alembic_version SET version_num = 'of_the_future'")
    cure = "the tables of another MLflow; run: pfrnn mlflow-import --create-store"
    assert cure in failure(newer)
    assert "written by a newer MLflow than the installed" in failure(newer, "--create-store")
    (tmp_path / "text.db").write_text("not a database, whatever its name says" * 100)
    assert "cannot be used" in failure(f"sqlite:///{tmp_path / 'text.db'}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert "no MLflow store answers at http" in failure("http://127.0.0.1:9")
    # The workflow goes on without it.
    assert main([*IMPORT, "--or-later", "--out", "later.json"]) == 0
    assert "not imported: no MLflow store answers" in capsys.readouterr().err
    later = json.loads((folder / "later.json").read_text())
    assert "no MLflow store answers" in later.pop("missed")
    assert later == json.loads((folder / "done.json").read_text())


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("run.json", "{", r"run\.json: expected a JSON mapping, got not JSON"),
     ("history.csv", "", r"history\.csv: expected the columns"),
     ("members.csv", None, r"members\.csv: missing")],
)  # fmt: skip
def test_a_damaged_record_is_named(name: str, text: str | None, words: str, tmp_path: Path) -> None:
    from pfrnn.errors import RecordError
    from pfrnn.study.track.jobs import read_job

    job = write_search(tmp_path / "quick")
    if text is None:
        (job / name).unlink()
    else:
        (job / name).write_text(text)
    with pytest.raises(RecordError, match=words):
        read_job(job, tmp_path / "quick")


def test_an_ensembles_test_score_is_not_its_members(tmp_path: Path) -> None:
    from pfrnn.study.files import read_json, write_json
    from pfrnn.study.track.jobs import read_job

    job = write_final(tmp_path / "quick")
    kind = {"parameters": {"variant": {"kind": "ensemble"}}}
    write_json(job / "run.json", read_json(job / "run.json") | kind)
    found = read_job(job, tmp_path / "quick")
    assert not any("test/rmse" in member.values.metrics for member in found.members)
    assert found.members[1].name == "repetition 1, seed 8, member 1"
    assert found.values.metrics["test"] == 3.25


def test_a_diverged_member_and_one_that_stopped_early(tmp_path: Path) -> None:
    from pfrnn.study.track.jobs import read_job

    job = write_final(tmp_path / "quick")
    table, history = job / "members.csv", job / "history.csv"
    table.write_text(table.read_text().replace(",0.5,1.0,", ",nan,inf,"))
    # Member 1 stops after the first epoch, with a training loss of 9: the mean keeps it.
    lines = [
        line for line in history.read_text().splitlines() if not line.startswith(("1,2", "1,3"))
    ]
    history.write_text("\n".join([*lines, ""]))
    found = read_job(job, tmp_path / "quick")
    assert not {"val_loss", "val_score"} & set(found.members[0].values.metrics)
    assert found.values.metrics["val_score"] == 1.5
    assert found.values.curves["curve/train_loss"] == ((1, 9.0), (2, 8.5), (3, 8.0))


def test_the_best_epoch_is_among_a_thinned_curves_points(tmp_path: Path) -> None:
    import pandas as pd

    from pfrnn.study.track.jobs import curves

    history = pd.DataFrame({"epoch": range(1, 1001), "loss": range(1000)}).astype(str)
    epochs = [epoch for epoch, _ in curves(history, best=637)["curve/loss"]]
    assert (epochs[0], epochs[-1], len(epochs)) == (1, 1000, 31)
    assert 637 in epochs
    assert len(curves(history)["curve/loss"]) == 30


@pytest.mark.nightly
def test_two_imports_at_once_into_a_fresh_store(tmp_path: Path) -> None:
    write_search(tmp_path / "results" / "quick")
    write_final(tmp_path / "results" / "quick")
    command = [sys.executable, "-m", "pfrnn", *IMPORT]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = sorted(process.communicate(timeout=300)[0].decode() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert "0 jobs imported (0 runs), 2 unchanged" in outputs[0]
    assert "2 jobs imported (6 runs), 0 unchanged" in outputs[1]


def test_an_absent_folder_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mlflow-import", "--results", "results/none"]) == 2
    assert "no such folder" in capsys.readouterr().err
