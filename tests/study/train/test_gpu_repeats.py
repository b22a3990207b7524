"""Two trainings with the same seeds on a GPU: the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pfrnn.study.config import load_config
from pfrnn.study.train.device import open_device
from pfrnn.study.train.members import search_members

from .test_gpu_graphs import opened
from .test_population import SETTINGS, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PARAMS = Path(__file__).parents[3] / "params.yaml"


@pytest.fixture
def _device():
    """The device as a job opens it; cuDNN's settings as before afterwards."""
    flags = torch.backends.cudnn
    before = flags.deterministic, flags.benchmark, flags.allow_tf32
    open_device(load_config(PARAMS, "smoke").execution, "cuda")
    yield
    flags.deterministic, flags.benchmark, flags.allow_tf32 = before


@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("maze10", "pf_lstm"),  # the map's convolutions
        ("maze10", "lstm"),
        ("toy_classes", "pf_gru"),
        ("toy_regression", "pf_lstm"),
        ("toy_regression", "bayes_gru"),
        ("toy_regression", "lstm_bnrelu"),
    ],
)
def test_a_training_run_again_has_the_same_bits(tmp_path, monkeypatch, name, model):
    monkeypatch.delenv("PFRNN_KERNELS", raising=False)
    patch = {"training": {"max_epochs": 6, "patience": 6, "bptt": 100}}
    ends = []
    for number in range(3):
        problem, path = opened(tmp_path / str(number), name, model, **patch)
        members = search_members(SETTINGS, 1, name)
        ends.append(run(problem, path, members, tmp_path / f"run{number}"))
        path.release()
    for other in ends[1:]:
        for one, row in zip(ends[0].history, other.history, strict=True):
            assert one["train_loss"] == row["train_loss"], row["epoch"]
            assert one["val_loss"] == row["val_loss"], row["epoch"]
        for member, best in ends[0].best.items():
            for stack, same in zip(best[:2], other.best[member][:2], strict=True):
                assert all(torch.equal(value, same[key]) for key, value in stack.items())
