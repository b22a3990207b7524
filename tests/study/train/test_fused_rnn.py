"""Plain and Bayesian RNNs on the fused loop: the same training as the plain path.

On a GPU where there is one, else in Triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.errors import ConfigError
from pfrnn.functional.rnn import run_rnn
from pfrnn.kernels import dispatch
from pfrnn.kernels.graph import EagerCapture
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import gather
from pfrnn.study.train.bayesian import BayesianPath
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.footprint import member_bytes
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.members import final_members, hyper
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import new_population
from pfrnn.study.variants import variant

from .test_population import run, world

MODELS = [
    ("toy_regression", "lstm"),
    ("toy_regression", "lstm_bnrelu"),
    ("toy_regression", "bayes_gru"),
    ("toy_classes", "gru"),
    ("maze10", "bayes_lstm"),
]


@pytest.fixture
def place(monkeypatch):
    monkeypatch.setenv("PFRNN_GRAPHS", "0")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def paths(tmp_path, name, model, place, monkeypatch, **patch):
    """A problem, the plain path and the fused one."""
    problem, plain = world(tmp_path, name, model, **patch)
    chosen = []
    for way in ("plain", "fused"):
        monkeypatch.setenv(dispatch.VARIABLE, way)
        chosen.append(choose_path(plain.spec, variant(model), problem.config, 40, place))
    assert [path.name for path in chosen] == ["plain", "fused"]
    assert isinstance(chosen[1], BayesianPath if model.startswith("bayes") else PlainPath)
    return problem, *chosen


def moved(split, place):
    return type(split)(*(value.to(place) for value in split[:4]), *split[4:])


@pytest.mark.parametrize(("name", "model"), MODELS)
def test_a_step_equals_the_plain_paths(tmp_path, place, monkeypatch, name, model):
    problem, plain, fused = paths(tmp_path, name, model, place, monkeypatch)
    members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
    batch = gather(moved(problem.train, place), torch.arange(6).repeat(2, 1).numpy())
    ends = []
    for path in (plain, fused):
        population = new_population(path.build, members, place)
        shift = population.parameters.get("core.cell.norm_shift")
        if shift is not None:
            # Away from ReLU's kink, where rounding decides: a unit that is the same in all
            # sequences is normalised to 0.
            shift.copy_(0.1 + 0.01 * torch.arange(shift.numel()).view(shift.shape))
        leaves = {k: v.clone().requires_grad_() for k, v in population.parameters.items()}
        loss = path.training_loss(leaves, population, members, batch, ("train", 1, 0)).loss
        gradients = torch.autograd.grad(loss.sum(), list(leaves.values()))
        path.train_step(population, members, hyper(members, place), batch)
        # Evaluate one state with both: RMSprop turns a zero gradient's rounding into a step.
        population.parameters = leaves
        ahead = path.predict(population, members, batch, ("validation", 0, 3), False)
        ends.append([loss, *gradients, *population.buffers.values(), population.sums, ahead.loss,
                     ahead.output.prediction])  # fmt: skip
    for first, second in zip(*ends, strict=True):
        # Both in float32 with sums in another order. The gradient of a bias before batch norm is
        # zero but for rounding: errors of 1.0e-5 (plain) and 1.4e-5 (fused) against float64.
        torch.testing.assert_close(first, second, rtol=1e-3, atol=3e-5)


@pytest.mark.parametrize("model", ["lstm_bnrelu", "gru"])
def test_captured_steps_have_the_bits_of_launched_ones(tmp_path, monkeypatch, model):
    if torch.cuda.is_available():
        pytest.skip("the stand-in for graphs is for CPUs; test_gpu_graphs.py has the real ones")
    cpu = torch.device("cpu")
    problem, _, fused = paths(
        tmp_path, "toy_regression", model, cpu, monkeypatch, training={"max_epochs": 1}
    )
    graphed = GraphedPath(fused, EagerCapture)
    members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
    pair = enumerate((fused, graphed))
    ends = [run(problem, path, members, tmp_path / str(n)) for n, path in pair]
    assert graphed.graph.startswith("captured: "), graphed.graph
    for first, second in zip(ends[0].history, ends[1].history, strict=True):
        # As text: a plain RNN's effective sample size is NaN, which equals nothing.
        assert str(first | {"seconds": 0}) == str(second | {"seconds": 0})


@pytest.mark.usefixtures("_loop_alone")
def test_kernels_that_fail_leave_the_plain_loop(tmp_path, caplog):
    from triton.runtime.errors import PTXASError

    def fails(*arguments, **options):
        raise PTXASError("too many registers\nlong listing")

    problem, plain = world(tmp_path, "toy_regression", "lstm")
    broken = PlainPath(plain.spec, plain.weights, plain.training)
    broken.take(dispatch.Choice("fused", "for the test", fails))
    members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
    cpu = torch.device("cpu")
    rows = torch.arange(6).repeat(2, 1).numpy()
    batch = gather(problem.train, rows)
    population, other = (new_population(path.build, members, cpu) for path in (broken, plain))
    found = broken.attempt(
        lambda: broken.predict(population, members, batch, ("validation", 0, 3), False)
    )
    expected = plain.predict(other, members, batch, ("validation", 0, 3), False)
    assert torch.equal(found.output.prediction, expected.output.prediction)
    assert broken.name == "plain"
    assert broken.reason.startswith("the fused kernels failed (PTXASError: ")
    assert "going on with the plain path" in caplog.text


def test_what_is_asked_for(tmp_path, monkeypatch):
    problem, plain = world(tmp_path, "toy_regression", "lstm")

    def chosen(way):
        monkeypatch.setenv(dispatch.VARIABLE, way)
        return choose_path(plain.spec, variant("lstm"), problem.config, 40, torch.device("cpu"))

    # Nobody gets the interpreter without asking for the kernels.
    assert chosen("auto").name == "plain"
    assert chosen("auto").reason == "torch's eager mode"
    assert (chosen("plain").name, chosen("plain").reason) == ("plain", "PFRNN_KERNELS=plain")
    with pytest.raises(ConfigError, match="expected one of auto, fused, compiled, plain"):
        chosen("fastest")
    monkeypatch.setattr(dispatch, "interpreted", lambda: False)
    with pytest.raises(ConfigError, match="the kernels refuse: the kernels run on a CUDA GPU"):
        chosen("fused")
    assert callable(plain.network.core.run)
    assert plain.network.core.run.func is run_rnn


def test_memory_of_the_fused_loop_is_estimated_by_its_own_tiles(tmp_path):
    _, plain = world(tmp_path, "toy_regression", "lstm")
    fused, eager = (
        member_bytes(plain.spec, 64, 100, 1000, name, False) for name in ("fused", "plain")
    )
    assert 0.8 < fused / eager < 1
