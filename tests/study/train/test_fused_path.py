"""The engine on the fused loop: the same training as the plain path.

On a GPU where there is one, else in Triton's interpreter. There the interpreter isn't asked for:
Triton 3.6, which torch 2.11 brings, can't loop in it with NumPy 2.4 or later.
"""

from __future__ import annotations

import functools

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from triton.runtime.errors import PTXASError

from pfrnn.functional.sequence import run_pf
from pfrnn.kernels import dispatch
from pfrnn.kernels.dispatch import Choice
from pfrnn.kernels.graph import EagerCapture
from pfrnn.kernels.noise import fill_normal, fill_uniform
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import epoch_batches, gather
from pfrnn.study.train.choose import choose_path, particle_path
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.fused import FusedPath
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.members import final_members, hyper
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import new_population
from pfrnn.study.variants import variant

from .test_population import run, world

# What the kernels take of the authors' release.
RELEASE = {
    "activation": "leaky_relu",
    "noise_scale": "softplus",
    "initial_state": "uniform",
    "gate_features": 3,
}

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def _kernels(monkeypatch):
    """The fused kernels, interpreted where there is no GPU."""
    monkeypatch.setenv(dispatch.VARIABLE, "fused")


def moved(split, device):
    return type(split)(*(value.to(device) for value in split[:4]), *split[4:])


class Given(PlainPath):
    """The plain loop on the very numbers that a fused path's kernels draw."""

    def __init__(self, plain, fused):
        super().__init__(plain.spec, plain.weights, plain.training)
        self.fused = fused

    def _randomness(self, members, axes, batch):
        drawn = self.fused._randomness(members, axes, batch)
        key = drawn.normal
        steps, sequences = batch.steps, batch.x.shape[2]
        particles, hidden = self.spec.particles, self.spec.hidden
        return Randomness(
            fill_normal(key, steps, sequences, particles, hidden),
            fill_uniform(key, steps, sequences, particles),
            drawn.initial,
        )

    def _dropout(self, members, axes, batch):
        return self.fused._dropout(members, axes, batch)


def one_step(path, members, batch):
    """Loss and gradients of a step, what it leaves beside the parameters, and a prediction."""
    population = new_population(path.build, members, DEVICE)
    leaves = {k: v.clone().requires_grad_() for k, v in population.parameters.items()}
    loss = path.training_loss(leaves, population, members, batch, ("train", 1, 0)).loss
    gradients = torch.autograd.grad(loss.sum(), list(leaves.values()))
    path.train_step(population, members, hyper(members, DEVICE), batch)
    # Evaluate one state with both: RMSprop turns a zero gradient's rounding into a step.
    population.parameters = leaves
    ahead = path.predict(population, members, batch, ("validation", 0, 3), False)
    after = [*population.buffers.values(), population.sums]
    return [loss, *gradients, *after, ahead.loss, ahead.output.prediction]


@pytest.mark.slow
@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize(
    ("name", "model", "dropout", "switches"),
    [
        ("toy_regression", "pf_lstm", 0.0, {}),
        ("toy_classes", "pf_gru", 0.5, {}),
        ("toy_regression", "pf_lstm_noelbo", 0.5, {}),
        ("toy_regression", "pf_lstm", 0.5, RELEASE),
    ],
)
def test_a_step_on_the_fused_loop_is_a_step_on_the_plain_one(
    tmp_path, name, model, dropout, switches
):
    patches = {"network": {"dropout": dropout}, "filter": {"switches": switches}}
    problem, plain = world(tmp_path, name, model, **patches)
    fused = particle_path(plain, DEVICE)
    assert isinstance(fused, FusedPath), fused.reason
    # The plain loop's products are float32.
    fused.network.core.run = functools.partial(run_pf_fused, precision="ieee")
    members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
    batch = gather(moved(problem.train, DEVICE), torch.arange(6).repeat(2, 1).numpy())
    ends = [one_step(path, members, batch) for path in (fused, Given(plain, fused))]
    for first, second in zip(*ends, strict=True):
        # Both in float32 with sums in another order.
        torch.testing.assert_close(first, second, rtol=1e-3, atol=2e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("_kernels")
def test_particles_start_where_the_members_seed_says(tmp_path):
    """Not from torch's own generator: a resumed run would start elsewhere."""
    switches = {"switches": {"initial_state": "uniform"}}
    problem, plain = world(tmp_path, "toy_regression", "pf_lstm", filter=switches)
    fused = particle_path(plain, DEVICE)
    members = final_members(Setting(0.01, 5.0, 1e-4), 3, 1, "toy")
    batch = gather(moved(problem.train, DEVICE), torch.arange(6).repeat(3, 1).numpy())

    def starts(members, *axes):
        before = torch.get_rng_state()
        found = fused._randomness(members, axes, batch).initial
        assert torch.equal(torch.get_rng_state(), before)
        return found

    one = starts(members, "train", 1, 0)
    assert one.shape == (2, 3, 6, 4, 5)
    assert 0 <= float(one.min())
    assert float(one.max()) < 1
    assert one.unique().numel() > 0.99 * one.numel()
    assert torch.equal(one, starts(members, "train", 1, 0))
    assert torch.equal(one[:, 1:2], starts(members[1:2], "train", 1, 0))
    for other in (("train", 1, 1), ("train", 2, 0), ("validation", 1, 0)):
        assert not torch.equal(one, starts(members, *other))


def cut(split):
    """Its first six sequences."""
    names = ("x", "length", "y", "mask", "host_length")
    return split._replace(**{name: getattr(split, name)[:6] for name in names})


@pytest.mark.slow
@pytest.mark.usefixtures("_kernels")
@pytest.mark.skipif(
    torch.cuda.is_available(),
    reason="on a GPU: tests/study/train/test_gpu_graphs.py, real captures",
)
@pytest.mark.parametrize(
    ("name", "model", "switches"),
    [
        ("toy_regression", "pf_gru", {}),
        ("toy_classes", "pf_lstm", {"initial_state": "uniform"}),
    ],
)
def test_captured_training_on_the_fused_loop_has_its_bits(tmp_path, name, model, switches):
    """Through the capture's stand-in: keys in memory that stays, the gather inside the step."""
    patches = {"training": {"max_epochs": 1}, "filter": {"switches": switches}}
    problem, plain = world(tmp_path, name, model, **patches)
    problem = problem._replace(train=cut(problem.train), batch_size=2)
    fused = particle_path(plain, DEVICE)
    assert isinstance(fused, FusedPath), fused.reason
    graphed = GraphedPath(fused, EagerCapture)
    members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
    ends = [
        run(problem, path, members, tmp_path / type(path).__name__) for path in (fused, graphed)
    ]
    assert fused.name == "fused"
    assert graphed.graph.startswith("captured: ")
    for first, second in zip(ends[0].history, ends[1].history, strict=True):
        assert first | {"seconds": 0} == second | {"seconds": 0}
    for place, stacks in ends[0].best.items():
        for first, second in zip(stacks, ends[1].best[place], strict=True):
            assert all(torch.equal(value, second[key]) for key, value in first.items())


def test_path_on_a_cpu_is_plain_with_a_reason(tmp_path, monkeypatch):
    monkeypatch.delenv("PFRNN_KERNELS", raising=False)
    _, plain = world(tmp_path, "toy_regression", "pf_lstm")
    chosen = particle_path(plain, torch.device("cpu"))
    assert type(chosen) is PlainPath
    assert chosen.name == "plain"
    assert "CUDA" in chosen.reason


def test_the_configuration_names_the_precision_of_the_kernels_products(tmp_path, monkeypatch):
    asked = []

    def choose(problem, precision):
        asked.append(precision)
        return dispatch.Choice("plain", "a stand-in", run_pf)

    monkeypatch.setattr(dispatch, "choose", choose)
    problem, plain = world(tmp_path, "toy_regression", "pf_lstm")
    execution = problem.config.execution.model_copy(update={"precision": "ieee"})
    config = problem.config.model_copy(update={"execution": execution})
    choose_path(plain.spec, variant("pf_lstm"), config, 8, torch.device("cpu"))
    assert asked == ["ieee"]


@pytest.mark.usefixtures("_loop_alone")
@pytest.mark.parametrize("graphs", [False, True])
def test_kernels_that_fail_to_compile_make_the_path_plain(tmp_path, caplog, graphs):
    """Each size is compiled on first use, on the user's card: a failure must not end the job."""

    def fails(*arguments, **options):
        raise PTXASError("too many registers\nlong listing")

    problem, plain = world(tmp_path, "toy_regression", "pf_lstm")
    choice = Choice("fused", "for the test", fails)
    broken = FusedPath(plain.spec, plain.weights, plain.training, choice)
    path = GraphedPath(broken, EagerCapture) if graphs else broken
    members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
    cpu = torch.device("cpu")
    ends = []
    for one in (path, plain):
        population = new_population(one.build, members, cpu)
        settings = hyper(members, cpu)
        for rows in epoch_batches(members, 1, 40, 10, cpu):
            one.train_on(population, members, settings, problem.train, rows)
        ends.append(population)
    for name, value in ends[1].parameters.items():
        assert torch.equal(ends[0].parameters[name], value)
    assert path.name == "plain"
    assert path.reason.startswith("the fused kernels failed (PTXASError: ")
    assert path.reason.endswith("too many registers)")
    assert path.graph == ("captured: 1 graphs" if graphs else "off")
    assert caplog.text.count("going on with the plain path") == 1


@pytest.mark.usefixtures("_loop_alone")
@pytest.mark.parametrize("times", [1, 2])
def test_a_compiler_that_a_signal_ended_is_asked_once_more(tmp_path, times):
    """A preempted job's processes all get the signal; its path must not change by it."""
    problem, plain = world(tmp_path, "toy_regression", "pf_lstm")
    original, calls = plain.network.core.run, []

    def killed(projected, state, key, *rest, **options):
        calls.append(key)
        if len(calls) <= times:
            raise PTXASError("PTXAS error: `ptxas` failed with error code -15\n")
        steps, hidden = len(projected), state.hidden
        noise = hidden.new_full((steps, *hidden.shape), 0.1)
        uniform = hidden.new_full((steps, *hidden.shape[:-1]), 0.5)
        return original(projected, state, noise, uniform, *rest[1:], **options)

    path = FusedPath(plain.spec, plain.weights, plain.training, Choice("fused", "", killed))
    members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
    cpu = torch.device("cpu")
    population = new_population(path.build, members, cpu)
    batch = gather(problem.train, torch.arange(6).repeat(2, 1).numpy())
    path.train_step(population, members, hyper(members, cpu), batch)
    assert path.name == ("fused" if times == 1 else "plain")
    assert len(calls) == 2
    assert population.step == 1


@pytest.mark.usefixtures("_loop_alone")
def test_kernels_that_fail_at_another_size_take_their_graphs_with_them(tmp_path):
    """The last batch's kernel fails after full batches were captured with theirs."""
    problem, plain = world(tmp_path, "toy_regression", "pf_lstm", training={"max_epochs": 2})
    problem = problem._replace(batch_size=18)
    original = plain.network.core.run

    def sometimes(projected, state, key, *rest, **options):
        if projected.shape[-2] == 4:
            raise PTXASError("too many registers")
        steps, hidden = len(projected), state.hidden
        noise = hidden.new_full((steps, *hidden.shape), 0.1)
        uniform = hidden.new_full((steps, *hidden.shape[:-1]), 0.5)
        return original(projected, state, noise, uniform, *rest[1:], **options)

    ends, used = [], []
    for graphs in (False, True):
        choice = Choice("fused", "for the test", sometimes)
        fused = FusedPath(plain.spec, plain.weights, plain.training, choice)
        path = GraphedPath(fused, EagerCapture) if graphs else fused
        members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
        ends.append(run(problem, path, members, tmp_path / str(graphs)))
        used.append(path)
    for row, other in zip(ends[0].history, ends[1].history, strict=True):
        assert row | {"seconds": 0} == other | {"seconds": 0}
    assert used[1].name == "plain"
    # Steps of the kernels' keys, int64, are gone; those of drawn noise are there.
    assert {key[-1][1][1] for key in used[1]._calls} == {torch.float32}
