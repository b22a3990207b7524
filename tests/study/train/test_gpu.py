"""Training on a GPU: captured steps equal launched ones; the same seeds give the same bits."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from pfrnn.study.config import load_config
from pfrnn.study.train.device import open_device
from pfrnn.study.train.members import final_members, search_members
from pfrnn.study.train.path import PlainPath

from .worlds import DIVERGES, SETTINGS, Setting, run, world

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")
PARAMS = Path(__file__).parents[3] / "params.yaml"


def opened(tmp_path, name, model, **patch):
    """A toy block on the GPU: full batches and a smaller last one."""
    problem, path = world(tmp_path, name, model, CUDA, **patch)
    return problem._replace(batch_size=7), path


@pytest.mark.parametrize(
    ("name", "model", "kernels"),
    [
        ("toy_regression", "lstm_bnrelu", "auto"),
        ("toy_classes", "gru", "auto"),
        ("toy_regression", "bayes_gru", "auto"),
        ("maze10", "pf_gru", "plain"),
        ("toy_regression", "pf_lstm", "compiled"),
        ("maze10", "pf_gru", "auto"),
        ("toy_classes", "pf_lstm", "auto"),
    ],
)
def test_captured_training_is_the_launched_one(tmp_path, monkeypatch, name, model, kernels):
    """To rounding: libraries may choose other products in a capture, sums may be unordered."""
    monkeypatch.setenv("PFRNN_KERNELS", kernels)
    patch = {"training": {"max_epochs": 3, "patience": 3, "bptt": 100}}
    ends = []
    for graphs in ("0", "1"):
        monkeypatch.setenv("PFRNN_GRAPHS", graphs)
        problem, path = opened(tmp_path / graphs, name, model, **patch)
        members = final_members(SETTINGS[0], 3, 1, name)
        ends.append(run(problem, path, members, tmp_path / f"run{graphs}"))
    assert path.graphs.summary.startswith("captured: "), path.graphs.summary
    for row, other in zip(ends[0].history, ends[1].history, strict=True):
        for key in ("train_loss", "val_loss"):
            # Rounding moves single ancestors of a filter, and RMSprop magnifies it.
            assert row[key] == pytest.approx(other[key], rel=2e-2), (key, row["epoch"])


def test_a_capture_that_waits_for_the_host_is_refused_and_training_goes_on(tmp_path, monkeypatch):
    problem, path = opened(tmp_path, "toy_regression", "gru")
    forward = PlainPath.forward

    def waits(self, weights, *rest):
        next(iter(weights.parameters.values())).sum().item()
        return forward(self, weights, *rest)

    monkeypatch.setattr(PlainPath, "forward", waits)
    members = final_members(SETTINGS[0], 2, 1, "toy_regression")
    state = run(problem, path, members, tmp_path / "run")
    assert path.graphs.summary.startswith("refused: "), path.graphs.summary
    assert [one.status for one in state.progress] == ["completed", "completed"]
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert gc.isenabled()


def test_members_that_stop_leave_and_graphs_are_made_again(tmp_path):
    problem, path = opened(
        tmp_path, "toy_regression", "gru", training={"max_epochs": 6, "patience": 1}
    )
    members = search_members([Setting(0.0, 5.0, 0.0), SETTINGS[0], DIVERGES], 1, "toy_regression")
    state = run(problem, path, members, tmp_path / "run")
    assert state.progress[0].status == "early_stopped"
    assert state.progress[2].status == "diverged"
    assert int(path.graphs.summary.split()[1]) > 3
    gc.collect()
    torch.cuda.empty_cache()
    # What is left are the data and the states, not the graphs' memory.
    assert torch.cuda.memory_reserved() < 2**28


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
        ("toy_classes", "pf_gru"),
        ("toy_regression", "bayes_gru"),
        ("toy_regression", "lstm_bnrelu"),
    ],
)
def test_a_training_run_again_has_the_same_bits(tmp_path, name, model):
    patch = {"training": {"max_epochs": 6, "patience": 6, "bptt": 100}}
    ends = []
    for number in range(2):
        problem, path = opened(tmp_path / str(number), name, model, **patch)
        members = search_members(SETTINGS, 1, name)
        ends.append(run(problem, path, members, tmp_path / f"run{number}"))
    for one, row in zip(*(end.history for end in ends), strict=True):
        assert one["train_loss"] == row["train_loss"], row["epoch"]
        assert one["val_loss"] == row["val_loss"], row["epoch"]
    for member, best in ends[0].best.items():
        for stack, same in zip(best, ends[1].best[member], strict=True):
            assert all(torch.equal(value, same[key]) for key, value in stack.items())
