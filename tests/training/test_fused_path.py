"""The engine on the fused loop: the same training as the plain path.

On a GPU where there is one, else in Triton's interpreter. There the interpreter isn't asked for:
Triton 3.6, which torch 2.11 brings, can't loop in it with NumPy 2.4 or later.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from pfrnn.functional.sequence import run_pf
from pfrnn.kernels import dispatch
from pfrnn.training.batches import gather
from pfrnn.training.choose import choose_path, particle_path
from pfrnn.training.path import PlainPath
from pfrnn.variants import variant

from . import toys
from .test_population import world

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs triton (its interpreter)"
)

# What the kernels take of the authors' release.
RELEASE = {
    "activation": "leaky_relu",
    "noise_scale": "softplus",
    "initial_state": "uniform",
    "gate_features": 3,
}

# In a process of its own: Triton reads TRITON_INTERPRET when it is imported.
CHILD = """
import functools
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, {root!r})
from pfrnn.kernels.noise import fill_normal, fill_uniform
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.plan import Setting
from pfrnn.nn.cores import Randomness
from pfrnn.training.batches import gather
from pfrnn.training.choose import particle_path
from pfrnn.training.fused import FusedPath
from pfrnn.training.members import final_members, hyper
from pfrnn.training.path import PlainPath
from pfrnn.training.population import new_population
from tests.training.test_population import world

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
problem, plain = world(Path({folder!r}), {name!r}, {model!r}, network={{"dropout": {dropout!r}}},
                       filter={{"switches": {switches!r}}})
fused = particle_path(plain, device)
assert isinstance(fused, FusedPath), fused.reason
# The plain loop's products are float32.
fused.network.core.run = functools.partial(run_pf_fused, precision="ieee")
train = problem.train
train = type(train)(*(value.to(device) for value in train[:4]), *train[4:])

class Given(PlainPath):
    # The plain loop on the very numbers that the kernels draw.
    def _randomness(self, members, axes, batch):
        drawn = fused._randomness(members, axes, batch)
        key = drawn.normal
        steps, sequences = batch.steps, batch.x.shape[2]
        particles, hidden = self.spec.particles, self.spec.hidden
        return Randomness(
            fill_normal(key, steps, sequences, particles, hidden),
            fill_uniform(key, steps, sequences, particles),
            drawn.initial,
        )

    def _dropout(self, members, axes, batch):
        return fused._dropout(members, axes, batch)

given = Given(plain.spec, plain.weights, plain.training)
members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
rows = torch.arange(6).repeat(2, 1).numpy()
batch = gather(train, rows)
ends = []
for path in (fused, given):
    population = new_population(path.build, members, device)
    leaves = {{k: v.clone().requires_grad_() for k, v in population.parameters.items()}}
    loss = path.training_loss(leaves, population, members, batch, ("train", 1, 0)).loss
    gradients = torch.autograd.grad(loss.sum(), list(leaves.values()))
    path.train_step(population, members, hyper(members, device), batch)
    # Evaluate one state with both: RMSprop turns a zero gradient's rounding into a step.
    population.parameters = leaves
    ahead = path.predict(population, members, batch, ("validation", 0, 3), False)
    ends.append([loss, *gradients, *population.buffers.values(), population.sums, ahead.loss,
                 ahead.output.prediction])
for first, second in zip(*ends, strict=True):
    # Both in float32 with sums in another order.
    torch.testing.assert_close(first, second, rtol=1e-3, atol=2e-5)
print("equal")
"""


# Training through the capture's stand-in: keys in memory that stays, the gather inside the step.
CAPTURED = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, {root!r})
from pfrnn.kernels.graph import EagerCapture
from pfrnn.plan import Setting
from pfrnn.training.choose import particle_path
from pfrnn.training.fused import FusedPath
from pfrnn.training.graphed import GraphedPath
from pfrnn.training.members import final_members
from tests.training.test_population import run, world

problem, plain = world(Path({folder!r}), {name!r}, {model!r}, training={{"max_epochs": 1}},
                       filter={{"switches": {switches!r}}})
cut = lambda split: split._replace(**{{
    name: getattr(split, name)[:6] for name in ("x", "length", "y", "mask", "host_length")}})
problem = problem._replace(train=cut(problem.train), batch_size=2)
fused = particle_path(plain, torch.device("cpu"))
assert isinstance(fused, FusedPath), fused.reason
graphed = GraphedPath(fused, EagerCapture)
members = final_members(Setting(0.01, 5.0, 1e-4), 2, 1, "toy")
ends = [run(problem, path, members, Path({folder!r}) / path.__class__.__name__)
        for path in (fused, graphed)]
assert fused.name == "fused" and graphed.graph.startswith("captured: "), graphed.graph
for first, second in zip(ends[0].history, ends[1].history, strict=True):
    assert first | {{"seconds": 0}} == second | {{"seconds": 0}}
for place, stacks in ends[0].best.items():
    for first, second in zip(stacks, ends[1].best[place], strict=True):
        assert all(torch.equal(value, second[key]) for key, value in first.items())
print("equal")
"""


@pytest.mark.slow
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
    code = CHILD.format(
        root=str(toys.ROOT),
        folder=str(tmp_path),
        name=name,
        model=model,
        dropout=dropout,
        switches=switches,
    )
    in_a_process(code)


STARTS = """
import sys
from pathlib import Path
import torch
sys.path.insert(0, {root!r})
from pfrnn.plan import Setting
from pfrnn.training.batches import gather
from pfrnn.training.choose import particle_path
from pfrnn.training.members import final_members
from tests.training.test_population import world

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
problem, plain = world(Path({folder!r}), "toy_regression", "pf_lstm",
                       filter={{"switches": {{"initial_state": "uniform"}}}})
fused = particle_path(plain, device)
train = problem.train
train = type(train)(*(value.to(device) for value in train[:4]), *train[4:])
members = final_members(Setting(0.01, 5.0, 1e-4), 3, 1, "toy")
batch = gather(train, torch.arange(6).repeat(3, 1).numpy())
def starts(members, *axes):
    before = torch.get_rng_state()
    found = fused._randomness(members, axes, batch).initial
    assert torch.equal(torch.get_rng_state(), before)
    return found
one = starts(members, "train", 1, 0)
assert one.shape == (2, 3, 6, 4, 5), one.shape
assert 0 <= float(one.min()) and float(one.max()) < 1
assert one.unique().numel() > 0.99 * one.numel()
assert torch.equal(one, starts(members, "train", 1, 0))
assert torch.equal(one[:, 1:2], starts(members[1:2], "train", 1, 0))
for other in (("train", 1, 1), ("train", 2, 0), ("validation", 1, 0)):
    assert not torch.equal(one, starts(members, *other))
print("equal")
"""


@pytest.mark.slow
def test_particles_start_where_the_members_seed_says(tmp_path):
    """Not from torch's own generator: a resumed run would start elsewhere."""
    in_a_process(STARTS.format(root=str(toys.ROOT), folder=str(tmp_path)))


@pytest.mark.slow
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="on a GPU: tests/training/test_gpu_graphs.py, real captures"
)
@pytest.mark.parametrize(
    ("name", "model", "switches"),
    [
        ("toy_regression", "pf_gru", {}),
        ("toy_classes", "pf_lstm", {"initial_state": "uniform"}),
    ],
)
def test_captured_training_on_the_fused_loop_has_its_bits(tmp_path, name, model, switches):
    code = CAPTURED.format(
        root=str(toys.ROOT), folder=str(tmp_path), name=name, model=model, switches=switches
    )
    in_a_process(code)


def in_a_process(code: str) -> None:
    """Run code with the fused kernels, interpreted where there is no GPU."""
    interpret = "0" if torch.cuda.is_available() else "1"
    environment = {"TRITON_INTERPRET": interpret, "PFRNN_KERNELS": "fused", "OMP_NUM_THREADS": "1"}
    quick = "from tests.kernels.quick_interpreter import speed_up; speed_up()\n"
    done = subprocess.run(
        [sys.executable, "-c", quick + code],
        cwd=toys.ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("equal\n"), done.stderr[-3000:]


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
    execution = problem.config.execution.model_copy(update={"precision": "tf32x3"})
    config = problem.config.model_copy(update={"execution": execution})
    choose_path(plain.spec, variant("pf_lstm"), config, 8, torch.device("cpu"))
    assert asked == ["tf32x3"]


@pytest.mark.usefixtures("_loop_alone")
@pytest.mark.parametrize("graphs", [False, True])
def test_kernels_that_fail_to_compile_make_the_path_plain(tmp_path, caplog, graphs):
    """Each size is compiled on first use, on the user's card: a failure must not end the job."""
    from triton.runtime.errors import PTXASError

    from pfrnn.kernels.dispatch import Choice
    from pfrnn.kernels.graph import EagerCapture
    from pfrnn.plan import Setting
    from pfrnn.training.batches import epoch_batches
    from pfrnn.training.fused import FusedPath
    from pfrnn.training.graphed import GraphedPath
    from pfrnn.training.members import final_members, hyper
    from pfrnn.training.population import new_population

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
    from triton.runtime.errors import PTXASError

    from pfrnn.kernels.dispatch import Choice
    from pfrnn.plan import Setting
    from pfrnn.training.fused import FusedPath
    from pfrnn.training.members import final_members, hyper
    from pfrnn.training.population import new_population

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
    from triton.runtime.errors import PTXASError

    from pfrnn.kernels.dispatch import Choice
    from pfrnn.kernels.graph import EagerCapture
    from pfrnn.plan import Setting
    from pfrnn.training.fused import FusedPath
    from pfrnn.training.graphed import GraphedPath
    from pfrnn.training.members import final_members

    from .test_population import run

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
