"""Captured steps, with a stand-in for the graph on a CPU: the training of the plain loop."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pfrnn.kernels.graph import EagerCapture, tensors
from pfrnn.study.train.batches import gather
from pfrnn.study.train.evaluate import scores
from pfrnn.study.train.graphs import Graphs
from pfrnn.study.train.members import final_members, search_members
from pfrnn.study.train.path import PlainPath

from .worlds import DIVERGES, SETTINGS, OneStep, Setting, run, world


class Poisoned(EagerCapture):
    """A graph's memory belongs to the graphs: another's replay may write over a result."""

    alive: ClassVar[list[EagerCapture]] = []

    def replay(self) -> None:
        for other in self.alive:
            if other is not self and other.result is not None:
                for value in tensors(other.result):
                    value.fill_(float("nan"))
        if self not in self.alive:
            self.alive.append(self)
        super().replay()


class Broken(EagerCapture):
    """A capture that fails, as one does that meets an operation which waits for the host."""

    def __init__(self, call, pool=None):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")


def both(tmp_path, name, model, members, make=Poisoned, batch_size=12, **patch):
    """The same training twice: launched, and through a stand-in for graphs."""
    Poisoned.alive.clear()
    ends = []
    for graphs in (None, Graphs(make)):
        problem, path = world(tmp_path / str(graphs is None), name, model, **patch)
        path.graphs = graphs
        problem = problem._replace(batch_size=batch_size)
        ends.append(run(problem, path, members, tmp_path / f"run{graphs is None}"))
    return *ends, graphs


def same(first, second) -> None:
    """Equal bits in the best weights and the histories, but for the times."""
    assert [one.status for one in first.progress] == [one.status for one in second.progress]
    for row, other in zip(first.history, second.history, strict=True):
        assert row | {"seconds": 0} == pytest.approx(other | {"seconds": 0}, abs=0, nan_ok=True)
    for place, weights in first.best.items():
        for stack, other in zip(weights, second.best[place], strict=True):
            for key, value in stack.items():
                assert torch.equal(value, other[key]), key


@pytest.mark.parametrize(
    ("name", "model", "dropout"),
    [
        ("toy_regression", "lstm_bnrelu", 0.0),
        ("toy_regression", "pf_lstm", 0.4),
        ("toy_regression", "bayes_gru", 0.4),
        ("maze10", "pf_gru", 0.0),
    ],
)
def test_captured_training_has_the_bits_of_the_launched_one(tmp_path, name, model, dropout):
    """40 or 30 sequences in batches of 12; members that stop early and one that diverges."""
    members = search_members([*SETTINGS[:2], Setting(0.0, 5.0, 0.0), DIVERGES], 1, name)
    first, second, graphs = both(
        tmp_path,
        name,
        model,
        members,
        training={"max_epochs": 5, "patience": 1},
        network={"dropout": dropout},
        bayesian={"sharpening": True, "prediction_samples": 2},
    )
    same(first, second)
    # A member left, so its population was captured again.
    assert len({len([r for r in first.history if r["epoch"] == e]) for e in (1, 3)}) == 2
    assert int(graphs.summary.split()[1]) >= 3


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize(("model", "bptt"), [("pf_lstm", 100), ("lstm", 100), ("pf_lstm", 4)])
def test_batches_of_unequal_lengths(tmp_path, model, bptt):
    """Cut at few lengths, equal to rounding; never where the gradient is cut in between."""
    members = final_members(SETTINGS[0], 1, 1, "toy_classes")
    patch = {"training": {"max_epochs": 3, "patience": 3, "bptt": bptt}, "batch_size": 2}
    first, second, _ = both(tmp_path, "toy_classes", model, members, **patch)
    if bptt < 7:
        same(first, second)
    for row, other in zip(first.history, second.history, strict=True):
        for key in ("train_loss", "val_loss", "gradient_norm"):
            assert row[key] == pytest.approx(other[key], rel=1e-6), key


def test_what_cannot_be_captured_runs_without(tmp_path, caplog):
    members = final_members(SETTINGS[0], 3, 1, "toy_regression")
    first, second, graphs = both(tmp_path, "toy_regression", "pf_gru", members, Broken)
    same(first, second)
    assert graphs.summary.startswith("refused: RuntimeError: operation not permitted when stream")
    assert "going on without" in caplog.text


def test_out_of_memory_in_a_capture_halves_the_population(tmp_path, monkeypatch):
    class Full(EagerCapture):
        def __init__(self, call, pool=None):
            super().__init__(call, pool)
            if not Full.failed:
                Full.failed = True
                raise torch.OutOfMemoryError("CUDA out of memory")

    Full.failed = False
    members = search_members([*SETTINGS, SETTINGS[0]], 1, "toy_regression")
    first, second, graphs = both(tmp_path, "toy_regression", "gru", members, Full)
    assert second.notes == ["out of memory with 4 members side by side; going on with half of them"]
    assert graphs.summary.startswith("captured: ")
    for one, other in zip(first.progress, second.progress, strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-4)


# Operations whose result the host reads or whose shape depends on numbers.
WAITS = {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "unique",
         "_unique2", "equal", "lift", "lift_fresh"}  # fmt: skip


class Watch(TorchDispatchMode):
    """Collects operations that would wait on a GPU, or that no capture allows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        packet = str(function).split(".")[1]
        masked = packet == "index" and any(
            index is not None and index.dtype == torch.bool for index in arguments[1]
        )
        if packet in WAITS or masked:
            self.found.append(str(function))
        return function(*arguments, **(options or {}))


def watched(one: OneStep) -> list[str]:
    """Do the device's part of a training and of an evaluation step; return what waits."""
    path, members = one.path, one.members
    random = one.randomness()
    other = path.evaluation_randomness(members, ("validation", 0, 0), one.cut, one.device)
    with Watch() as watch:
        batch = gather(one.split, one.rows.device, one.cut)
        path.step(one.population, one.hyper, batch, random)
        scores(path.evaluate(one.population.current, batch, other), batch, one.split)
    return watch.found


@pytest.mark.parametrize(
    ("name", "model", "fidelity"),
    [
        ("toy_regression", "gru", "paper"),
        ("toy_regression", "pf_lstm_noresample", "paper"),
        ("toy_regression", "bayes_lstm", "paper"),
        ("toy_classes", "pf_gru", "paper"),
        ("toy_classes", "lstm_bnrelu", "paper"),
        ("maze10", "pf_lstm", "authors_code"),
    ],
)
def test_nothing_in_a_step_waits_for_the_host(tmp_path, name, model, fidelity):
    problem, path = world(
        tmp_path, name, model, filter={"fidelity": fidelity}, bayesian={"sharpening": True}
    )
    assert watched(OneStep(problem, path, final_members(SETTINGS[0], 2, 1, name))) == []


@pytest.mark.parametrize(
    "mutant",
    [
        lambda x: bool((x > 0).all()),
        lambda x: float(x.sum()),
        lambda x: x[x > 0],
        lambda x: x * x.new_tensor([1.0]),
    ],
)
def test_what_waits_is_seen(tmp_path, monkeypatch, mutant):
    """The watch can fail: each way to wait, hidden in the forward pass."""
    problem, path = world(tmp_path, "toy_regression", "gru")
    forward = PlainPath.forward

    def waiting(self, weights, *rest):
        mutant(next(iter(weights.parameters.values())).detach())
        return forward(self, weights, *rest)

    monkeypatch.setattr(PlainPath, "forward", waiting)
    assert watched(OneStep(problem, path, final_members(SETTINGS[0], 2, 1, "toy"))) != []
