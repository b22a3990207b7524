"""What the finished smoke tier left in MLflow: pictures, and models that load elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _copy import Copy

from pfrnn.study.files import read_json

pytestmark = pytest.mark.slow

# A fresh process: no repository on its path, and only what the model says it needs.
PREDICT = """
import sys
# mlflow and torch bring packages of their own; none of the study's may be among them. Absent, not
# forbidden: torch's builds for GPUs look whether Triton is there.
for name in ("dvc", "snakemake", "triton", "hypothesis"):
    sys.modules[name] = None
import mlflow, numpy as np
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(f"models:/{sys.argv[2]}@smoke")
arrays = np.load(sys.argv[3])
import pfrnn
assert "site-packages" not in pfrnn.__file__ and "code" in pfrnn.__file__, pfrnn.__file__
np.save(sys.argv[4], model.predict({"x": arrays["x"], "length": arrays["length"]}))
"""


def _client(folder: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")


def test_finals_have_pictures_and_their_record(finished: Copy) -> None:
    client = _client(finished.folder)
    experiment = client.get_experiment_by_name("pfrnn/maze10")
    finals = client.search_runs([experiment.experiment_id], "tags.stage = 'final'", max_results=99)
    parents = [run for run in finals if "mlflow.parentRunId" not in run.data.tags]
    assert len(parents) == 4
    for run in parents:
        names = {entry.path for entry in client.list_artifacts(run.info.run_id)}
        pictures = {"predictions.png"}
        if run.data.tags["variant"].startswith("pf_"):
            pictures.add("belief.png")
        assert names == {"run.json"} | pictures
        assert run.data.tags["cells"] == f"maze10/{run.data.tags['variant']}-fixed"
        assert {"commit", "data_state", "data_digest", "fidelity", "device"} <= set(run.data.tags)


def test_curves_are_all_there(finished: Copy) -> None:
    client = _client(finished.folder)
    experiment = client.get_experiment_by_name("pfrnn/maze10")
    query = "tags.stage = 'search' and tags.variant = 'pf_lstm' and params.learning_rate = '0.001'"
    (run,) = client.search_runs([experiment.experiment_id], query)
    wanted = ("train_loss", "val_loss", "val_score", "gradient_norm", "ess", "unique_ancestors")
    for name in (*wanted, "learning_rate", "val_last_step_mse"):
        points = client.get_metric_history(run.info.run_id, f"curve/{name}")
        assert [point.step for point in points] == [1, 2], name


@pytest.mark.parametrize("variant", ["gru", "pf_lstm"])
def test_a_model_loads_elsewhere_and_predicts_the_same(
    finished: Copy, tmp_path: Path, variant: str
) -> None:
    from pfrnn.study.data.prepare import load_prepared
    from pfrnn.study.train.serving import chosen_rows

    (arrays,) = finished.folder.glob("data/prepared/maze10-*")
    test = load_prepared(arrays).splits["test"]
    np.savez(tmp_path / "input.npz", x=test.x, length=test.length)
    uri = f"sqlite:///{finished.folder / 'mlflow.db'}"
    name = f"pfrnn-maze10-{variant}"
    files = [str(tmp_path / "input.npz"), str(tmp_path / "output.npy")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, uri, name, *files],
        cwd=tmp_path,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    predicted = np.load(tmp_path / "output.npy")
    (final,) = finished.folder.glob(f"results/smoke/final/maze10/{variant}-fixed-*")
    kept = np.load(final / "predictions.npz")
    repetition = int(chosen_rows(final)[0]["repetition"])
    (place,) = np.flatnonzero(kept["repetition"] == repetition)
    seen = kept["mask"]
    # The kept ones came from a stack of repetitions: another matrix product, the same numbers up
    # to its rounding.
    np.testing.assert_allclose(
        predicted[kept["index"]][seen], kept["prediction"][place][seen], rtol=1e-4, atol=1e-4
    )


def test_the_state_dict_is_the_checkpoints(finished: Copy) -> None:
    import torch

    from pfrnn.study.train.serving import chosen_rows

    client = _client(finished.folder)
    version = client.get_model_version_by_alias("pfrnn-maze10-pf_gru", "smoke")
    logged = version.source.rsplit("/", 1)[-1]
    folder = next((finished.folder / "mlruns").glob(f"*/models/{logged}/**/states"))
    state = torch.load(folder / "0.pt", weights_only=True)
    (final,) = finished.folder.glob("results/smoke/final/maze10/pf_gru-fixed-*")
    best = torch.load(final / "best.pt", weights_only=True)
    member = int(chosen_rows(final)[0]["member"])
    stacks = {**best["parameters"], **best["buffers"]}
    assert state.keys() == stacks.keys()
    assert all(torch.equal(state[key], value[member]) for key, value in stacks.items())
    described = read_json(folder.parent / "model.json")
    assert described["variant"] == "pf_gru"
