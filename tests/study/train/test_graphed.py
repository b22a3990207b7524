"""Captured steps, with a stand-in for the graph on a CPU: the training of the plain loop."""

from __future__ import annotations

import csv
import gc
import json
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.kernels.graph import CudaCapture, EagerCapture, Inputs, form, mapped, tensors
from pfrnn.study.plan import Setting
from pfrnn.study.train import choose
from pfrnn.study.train.block import train_block
from pfrnn.study.train.choose import choose_path, with_graphs
from pfrnn.study.train.evaluate import evaluate
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.interrupt import StoppedError
from pfrnn.study.train.members import final_members, search_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import new_population
from pfrnn.study.train.trainer import BlockTrainer
from pfrnn.study.variants import variant

from . import toys
from .test_population import SETTINGS, _double, run, world  # noqa: F401
from .test_resume import same_numbers

CPU = torch.device("cpu")
DIVERGES = Setting(1e30, 5.0, 0.0)


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


@pytest.fixture(autouse=True)
def _no_graphs_of_others():
    Poisoned.alive.clear()


def paths(tmp_path, name, model, **patch):
    problem, plain = world(tmp_path, name, model, **patch)
    count = problem.train.sequences
    made = [choose_path(plain.spec, variant(model), problem.config, count, CPU) for _ in range(2)]
    return problem, made[0], GraphedPath(made[1], Poisoned)


def both(problem, plain, graphed, members, tmp_path):
    return [
        run(problem, path, members, tmp_path / name)
        for name, path in (("plain", plain), ("graphed", graphed))
    ]


def same(first, second) -> None:
    """Equal bits in the best states and the histories, but for the times."""
    assert [one.status for one in first.progress] == [one.status for one in second.progress]
    for row, other in zip(first.history, second.history, strict=True):
        assert row | {"seconds": 0} == pytest.approx(other | {"seconds": 0}, abs=0, nan_ok=True)
    for place, stacks in first.best.items():
        for stack, other in zip(stacks, second.best[place], strict=True):
            for key, value in stack.items():
                assert torch.equal(value, other[key]), key


CASES = [
    ("toy_regression", "lstm"),
    ("toy_regression", "lstm_bnrelu"),
    ("toy_regression", "pf_lstm"),
    ("toy_regression", "pf_lstm_noresample"),
    ("toy_regression", "bayes_gru"),
    ("maze10", "pf_gru"),
]


@pytest.mark.parametrize(("name", "model"), CASES)
@pytest.mark.parametrize("search", [True, False])
def test_captured_training_has_the_bits_of_the_plain_loop(tmp_path, name, model, search):
    """40 or 30 sequences in batches of 12; members that stop early and one that diverges."""
    problem, plain, graphed = paths(
        tmp_path,
        name,
        model,
        training={"max_epochs": 5, "patience": 1},
        bayesian={"sharpening": search, "prediction_samples": 2},
    )
    problem = problem._replace(batch_size=12)
    if search:
        members = search_members([*SETTINGS, Setting(0.0, 5.0, 0.0), DIVERGES], 1, name)
    else:
        members = final_members(SETTINGS[0], 3, 1, name)
    first, second = both(problem, plain, graphed, members, tmp_path)
    same(first, second)
    if search:
        # Compacted at least once, so captured anew.
        assert len({len([r for r in first.history if r["epoch"] == e]) for e in (1, 3)}) == 2
    assert graphed.graph.startswith("captured: ")
    # Training and validation, full and last batches.
    assert int(graphed.graph.split()[1]) >= 3


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize("model", ["pf_lstm", "lstm"])
@pytest.mark.parametrize(("buckets", "bptt"), [(1000, 100), (3, 100), (3, 4)])
def test_batches_of_unequal_lengths(tmp_path, monkeypatch, model, buckets, bptt):
    """Cut at their longest sequence: equal bits. At the next of three: equal to rounding.

    Where the gradient is cut within the longest sequence, no step is added.
    """
    monkeypatch.setattr("pfrnn.study.train.graphed.BUCKETS", buckets)
    problem, plain, graphed = paths(
        tmp_path, "toy_classes", model, training={"max_epochs": 3, "patience": 3, "bptt": bptt}
    )
    problem = problem._replace(batch_size=2)
    members = final_members(SETTINGS[0], 1, 1, "toy_classes")
    first, second = both(problem, plain, graphed, members, tmp_path)
    steps = {key[2] for key in graphed._calls if key[0] == "train"}
    if (buckets, bptt) == (3, 100):
        # Seven steps in the longest sequence of all; some batches end at 4 or 5.
        assert {6, 7} <= steps <= {3, 6, 7}
        for row, other in zip(first.history, second.history, strict=True):
            for key in ("train_loss", "val_loss", "gradient_norm"):
                assert row[key] == pytest.approx(other[key], rel=1e-6), key
    else:
        assert len(steps) > 2
        same(first, second)


@pytest.mark.parametrize(
    ("name", "model"),
    [("toy_regression", "gru"), ("toy_classes", "pf_lstm"), ("toy_regression", "bayes_lstm")],
)
def test_captured_training_with_dropout(tmp_path, name, model):
    """The masks are drawn before a replay, as without one."""
    problem, plain, graphed = paths(
        tmp_path, name, model, network={"dropout": 0.4}, training={"max_epochs": 2, "bptt": 100}
    )
    assert plain.spec.dropout == 0.4
    members = final_members(SETTINGS[0], 2, 1, name)
    first, second = both(problem, plain, graphed, members, tmp_path)
    same(first, second)
    assert graphed.graph.startswith("captured: ")


def test_a_captured_run_stopped_in_mid_epoch_resumes_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "with_graphs", lambda path, device: GraphedPath(path, Poisoned))
    plan = toys.study(
        {"study": {"variants": ["pf_lstm"]}, "training": {"max_epochs": 4}},
    )
    places = toys.prepared_places(plan, tmp_path)
    block = plan.blocks[0].id
    train_block(plan, block, places)
    record = json.loads((places.results / block / "run.json").read_text())
    assert record["graph"].startswith("captured: ")
    again = places._replace(results=tmp_path / "again")
    pause, count = BlockTrainer._pause, 0

    def stopping(self, request):
        nonlocal count
        count += 1
        if count in (2, 5, 9):
            request.signal = 15
        pause(self, request)

    monkeypatch.setattr(BlockTrainer, "_pause", stopping)
    for _ in range(3):
        with pytest.raises(StoppedError):
            train_block(plan, block, again)
    train_block(plan, block, again)
    assert same_numbers(places.results / block, again.results / block)


def test_out_of_memory_halves_a_captured_population(tmp_path, monkeypatch):
    problem, plain, graphed = paths(tmp_path, "toy_regression", "gru")
    members = search_members([*SETTINGS, SETTINGS[0]], 1, "toy_regression")
    original = PlainPath.forward

    def forward(self, parameters, *rest):
        if len(next(iter(parameters.values()))) > 2 and rest[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return original(self, parameters, *rest)

    monkeypatch.setattr(PlainPath, "forward", forward)
    ends = both(problem, plain, graphed, members, tmp_path)
    same(*ends)
    assert ends[1].notes == [
        "out of memory with 4 members side by side; going on with half of them"
    ]
    assert graphed.graph.startswith("captured: ")


class Broken(EagerCapture):
    """A capture that fails, as one does that meets an operation which waits for the host."""

    def __init__(self, call, pool=None):
        call()
        raise RuntimeError("operation not permitted when stream is capturing\nmore")


class Stale(EagerCapture):
    """A replay that does nothing, as of a graph whose kernels write elsewhere."""

    def replay(self):
        pass


class Full(EagerCapture):
    def __init__(self, call, pool=None):
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("make", "status", "warning"),
    [
        (Broken, "refused: RuntimeError: operation not permitted when stream", "going on without"),
        (Stale, "refused: a replay gave other numbers", "going on without"),
        (Full, "none captured", "no memory to capture"),
    ],
)
def test_what_cannot_be_captured_runs_without(tmp_path, caplog, make, status, warning):
    problem, plain, graphed = paths(tmp_path, "toy_regression", "pf_gru")
    broken = GraphedPath(graphed.inner, make)
    members = final_members(SETTINGS[0], 3, 1, "toy_regression")
    ends = both(problem, plain, broken, members, tmp_path)
    same(*ends)
    assert broken.graph.startswith(status)
    assert warning in caplog.text


def test_graphs_make_way_for_a_step_that_needs_their_memory(tmp_path, monkeypatch):
    """The last batch's first step finds the full batches' graph in its way, once."""
    problem, plain, graphed = paths(tmp_path, "toy_regression", "gru")
    members = final_members(SETTINGS[0], 2, 1, "toy_regression")
    step, failed = PlainPath.step, []

    def tight(self, population, hyper, batch, randomness, asks=True):
        captured = any(call.captured for call in graphed._calls.values())
        if self is graphed.inner and batch.x.shape[2] == 8 and captured and not failed:
            failed.append(True)
            raise torch.OutOfMemoryError("CUDA out of memory")
        step(self, population, hyper, batch, randomness, asks)

    monkeypatch.setattr(PlainPath, "step", tight)
    ends = both(problem, plain, graphed, members, tmp_path)
    same(*ends)
    assert failed
    assert ends[1].notes == []


def test_evaluation_of_other_populations_and_states(tmp_path):
    problem, plain, graphed = paths(tmp_path, "toy_regression", "pf_lstm")
    members = final_members(SETTINGS[0], 2, 1, "toy_regression")
    populations = [new_population(plain.build, members, CPU) for _ in range(2)]
    for value in populations[1].best_parameters.values():
        value.mul_(0.5)
    for best in (False, True):
        for population in populations:
            for number in range(3):
                found, expected = (
                    evaluate(path, population, members, problem.validation, ("test", number), best)
                    for path in (graphed, plain)
                )
                assert (found.prediction == expected.prediction).all()
                assert (found.loss == expected.loss).all()
                assert (found.ess == expected.ess).all()


def test_graphs_are_for_cuda_and_can_be_switched_off(tmp_path, monkeypatch):
    _, path = world(tmp_path, "toy_regression", "gru")
    monkeypatch.delenv("PFRNN_GRAPHS", raising=False)
    assert with_graphs(path, CPU) is path
    assert path.graph == "off: no CUDA graphs on cpu"
    cuda = torch.device("cuda")
    assert isinstance(with_graphs(path, cuda), GraphedPath)
    monkeypatch.setenv("PFRNN_GRAPHS", "0")
    assert with_graphs(path, cuda) is path
    assert path.graph == "off: PFRNN_GRAPHS=0"
    monkeypatch.setenv("PFRNN_GRAPHS", "yes")
    with pytest.raises(ConfigError, match="expected 0 or 1, got 'yes'"):
        with_graphs(path, cuda)


def test_inputs_stay_in_their_memory_and_expanded_axes_stay_expanded():
    one = torch.randn(1, 5, 3)
    value = {"a": one.expand(4, 5, 3), "b": (torch.arange(6)[::2], None, [one[0].t()])}
    inputs = Inputs(value)
    where = [x.data_ptr() for x in tensors(inputs.value)]
    assert form(inputs.value) == form(value)
    assert inputs.value["a"].stride(0) == 0
    other = mapped(value, lambda x: x + 1)
    other["a"] = other["a"][:1].expand(4, 5, 3)
    inputs.fill(other)
    assert [x.data_ptr() for x in tensors(inputs.value)] == where
    for found, expected in zip(tensors(inputs.value), tensors(other), strict=True):
        assert torch.equal(found, expected)
    with pytest.raises(ValueError, match="argument"):
        inputs.fill({"a": one})


def test_a_block_and_its_history_say_what_was_captured(tmp_path, monkeypatch):
    """On a CPU run.json says why there is no graph."""
    plan = toys.study({"study": {"variants": ["gru"]}, "training": {"max_epochs": 1}})
    places = toys.prepared_places(plan, tmp_path)
    train_block(plan, plan.blocks[0].id, places)
    folder = Path(places.results / plan.blocks[0].id)
    assert json.loads((folder / "run.json").read_text())["graph"] == "off: no CUDA graphs on cpu"
    with (folder / "history.csv").open(newline="") as source:
        assert len(list(csv.DictReader(source))) == 2


class _Stream:
    """As torch's graph context: sets its own stream and, after a failure, doesn't set it back."""

    current = "default"

    def __init__(self, graph, pool=None):
        self.pool = pool

    def __enter__(self):
        _Stream.current = "capture"

    def __exit__(self, kind, *rest):
        if kind is not None:
            raise RuntimeError("operation failed due to a previous error during capture")
        _Stream.current = "default"


class _Graph:
    replays = 0

    def replay(self):
        _Graph.replays += 1


@pytest.fixture
def cuda(monkeypatch):
    """What CudaCapture calls of torch.cuda, where there is none."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", _Graph)
    monkeypatch.setattr(torch.cuda, "graph", _Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: _Stream.current)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda s: setattr(_Stream, "current", s))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    ended: list[tuple[str, int, object]] = []
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        note = partial(lambda name, *arguments: ended.append((name, *arguments)), name)
        monkeypatch.setattr(torch._C, name, note, raising=False)
    return ended


def test_a_capture_leaves_stream_collector_and_allocator_as_they_were(cuda):
    seen = []
    capture = CudaCapture(lambda: seen.append((_Stream.current, gc.isenabled())) or 7)
    assert seen == [("capture", False)]
    assert capture.result == 7
    capture.replay()
    assert _Graph.replays == 1
    assert cuda == []
    with pytest.raises(RuntimeError, match="during capture"):
        CudaCapture(lambda: 1 / 0, pool=(0, 5))
    assert cuda == [("_cuda_endAllocateToPool", 3, (0, 5)), ("_cuda_releasePool", 3, (0, 5))]
    assert _Stream.current == "default"
    assert gc.isenabled()
