"""Captured steps on a GPU: the training of steps launched one by one."""

from __future__ import annotations

import gc

import pytest
import torch

from pfrnn.kernels.graph import CudaCapture
from pfrnn.study.plan import Setting
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.members import final_members, search_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.variants import variant

from .test_population import SETTINGS, run, world

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")
CASES = [
    ("toy_regression", "lstm", "auto"),
    ("toy_regression", "lstm_bnrelu", "auto"),
    ("toy_classes", "gru", "auto"),
    ("toy_regression", "bayes_gru", "auto"),
    ("maze10", "pf_gru", "plain"),
    ("toy_classes", "pf_lstm", "plain"),
    ("toy_regression", "pf_lstm", "compiled"),
    ("maze10", "pf_gru", "auto"),
    ("toy_classes", "pf_lstm", "auto"),
]


def opened(tmp_path, name, model, **patch):
    """A toy block on the GPU: four steps an epoch and a smaller last one."""
    problem, plain = world(tmp_path, name, model, **patch)
    moved = [
        type(split)(*(value.to(CUDA) for value in split[:4]), *split[4:])
        for split in (problem.train, problem.validation)
    ]
    problem = problem._replace(train=moved[0], validation=moved[1], batch_size=7)
    count = problem.train.sequences
    return problem, choose_path(plain.spec, variant(model), problem.config, count, CUDA)


@pytest.mark.parametrize(("name", "model", "kernels"), CASES)
def test_captured_training_is_the_launched_one(tmp_path, monkeypatch, name, model, kernels):
    """To rounding: libraries may choose other products in a capture, sums may be unordered."""
    monkeypatch.setenv("PFRNN_KERNELS", kernels)
    patch = {"training": {"max_epochs": 3, "patience": 3, "bptt": 100}}
    ends, paths = [], []
    for graphs in ("0", "1"):
        monkeypatch.setenv("PFRNN_GRAPHS", graphs)
        problem, path = opened(tmp_path / graphs, name, model, **patch)
        members = final_members(SETTINGS[0], 3, 1, name)
        ends.append(run(problem, path, members, tmp_path / f"run{graphs}"))
        paths.append(path)
    assert isinstance(paths[1], GraphedPath)
    assert paths[1].graph.startswith("captured: "), paths[1].graph
    assert paths[0].name == paths[1].name, paths[1].reason
    for row, other in zip(ends[0].history, ends[1].history, strict=True):
        for key in ("train_loss", "val_loss"):
            # Rounding moves single ancestors of a filter, and RMSprop magnifies it.
            assert row[key] == pytest.approx(other[key], rel=2e-2), (key, row["epoch"])


def test_a_capture_that_waits_for_the_host_is_refused_and_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.delenv("PFRNN_GRAPHS", raising=False)
    problem, path = opened(tmp_path, "toy_regression", "gru")
    forward = PlainPath.forward

    def waits(self, parameters, *rest):
        next(iter(parameters.values())).sum().item()
        return forward(self, parameters, *rest)

    monkeypatch.setattr(PlainPath, "forward", waits)
    members = final_members(SETTINGS[0], 2, 1, "toy_regression")
    state = run(problem, path, members, tmp_path / "run")
    assert path.graph.startswith("refused: "), path.graph
    assert [one.status for one in state.progress] == ["completed", "completed"]
    current = torch.cuda.current_stream()
    assert current == torch.cuda.default_stream()
    assert gc.isenabled()


def test_members_that_stop_leave_and_graphs_are_made_anew(tmp_path, monkeypatch):
    monkeypatch.delenv("PFRNN_GRAPHS", raising=False)
    problem, path = opened(
        tmp_path, "toy_regression", "gru", training={"max_epochs": 6, "patience": 1}
    )
    settings = [Setting(0.0, 5.0, 0.0), SETTINGS[0], Setting(1e30, 5.0, 0.0)]
    state = run(problem, path, search_members(settings, 1, "toy_regression"), tmp_path / "run")
    assert state.progress[0].status == "early_stopped"
    assert state.progress[2].status == "diverged"
    assert int(path.graph.split()[1]) > 3
    path.release()
    gc.collect()
    torch.cuda.empty_cache()
    # What is left are the data and the states, not the graphs' memory.
    assert torch.cuda.memory_reserved() < 2**28


def test_a_replay_reads_new_inputs_and_leaves_its_result():
    x, total = torch.zeros(4, device=CUDA), torch.zeros(4, device=CUDA)

    def step():
        total.add_(x)
        return total * 2

    step()
    capture = CudaCapture(step, CudaCapture.pool())
    assert total.eq(0).all()
    for value in (1.0, 2.0):
        x.fill_(value)
        capture.replay()
    assert total.eq(3).all()
    assert capture.result.eq(6).all()
