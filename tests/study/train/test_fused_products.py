"""Which paths multiply in kernels what lies around their loop over time."""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest
import torch

from pfrnn.kernels import dispatch
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import gather
from pfrnn.study.train.choose import particle_path, rnn_choice
from pfrnn.study.train.members import final_members, hyper
from pfrnn.study.train.population import new_population

from .test_population import world

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs triton (its interpreter)"
)


@pytest.fixture
def taken(monkeypatch):
    """How often affine asked, and how often the kernels took what it asked for."""
    from pfrnn.study.train import kernel_loop

    product, found = kernel_loop.product, Counter()

    def counted(x, weight, bias):
        out = product(x, weight, bias)
        found["asked"] += 1
        found["taken"] += out is not NotImplemented
        return out

    monkeypatch.setattr(kernel_loop, "product", counted)
    return found


def steps(problem, path, taken):
    """Products that a training step and an evaluation gave to the kernels."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
    train = type(problem.train)(*(x.to(device) for x in problem.train[:4]), *problem.train[4:])
    batch = gather(train, torch.arange(2).repeat(2, 1).numpy())
    population = new_population(path.build, members, device)
    counts = []
    for work in (
        lambda: path.train_step(population, members, hyper(members, device), batch),
        lambda: path.predict(population, members, batch, ("validation", 0, 3), False),
    ):
        taken.clear()
        work()
        counts.append(taken["taken"])
    assert bool(population.finite.all())
    return counts


@pytest.mark.parametrize("way", ["fused", "plain"])
def test_a_filters_path(tmp_path, monkeypatch, taken, way):
    monkeypatch.setenv(dispatch.VARIABLE, way)
    problem, plain = world(tmp_path, "toy_regression", "pf_lstm")
    path = particle_path(plain, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    assert path.name == way, path.reason
    if way == "plain":
        assert steps(problem, path, taken) == [0, 0]
        return
    # Encoder and the cell's inputs; the head is in the loop.
    assert steps(problem, path, taken) == [2, 2]
    # The core's own loop has the library's products, too.
    path.loop._fall_back(RuntimeError("no kernel"))
    assert steps(problem, path, taken) == [0, 0]


@pytest.mark.parametrize("way", ["fused", "plain"])
def test_a_plain_rnns_path(tmp_path, monkeypatch, taken, way):
    monkeypatch.setenv(dispatch.VARIABLE, way)
    problem, path = world(tmp_path, "toy_regression", "lstm")
    path.take(rnn_choice(path, torch.device("cuda" if torch.cuda.is_available() else "cpu")))
    assert path.name == way, path.reason
    # Encoder, the cell's inputs and the head, each for all steps at once.
    assert steps(problem, path, taken) == ([3, 3] if way == "fused" else [0, 0])
