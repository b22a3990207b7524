"""The engine on the fused loops: the same training as the plain path, and the kernel's update.

On a GPU where there is one, else in Triton's interpreter. There the interpreter isn't asked for:
Triton 3.6, which torch 2.11 brings, can't loop in it with NumPy 2.4 or later.
"""

from __future__ import annotations

import functools

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.errors import ConfigError
from pfrnn.kernels import dispatch
from pfrnn.kernels.noise import fill_normal, fill_uniform
from pfrnn.kernels.sequence import run_pf_fused
from pfrnn.study.train.choose import choose_path, particle_path
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.flat import ALIGNMENT, Flat, FlatRMSprop
from pfrnn.study.train.fused import FusedPath
from pfrnn.study.train.members import final_members, hyper, search_members
from pfrnn.study.train.optimiser import rmsprop
from pfrnn.study.train.path import PlainPath
from pfrnn.study.variants import variant

from .worlds import CPU, SETTINGS, OneStep, Setting, world

SETTING = Setting(0.01, 5.0, 1e-4)
# What the kernels take of the authors' release.
RELEASE = {
    "activation": "leaky_relu",
    "noise_scale": "softplus",
    "initial_state": "uniform",
    "gate_features": 3,
}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Given(PlainPath):
    """The plain loop on the very numbers that a fused path's kernels draw."""

    def __init__(self, fused):
        super().__init__(fused.spec, fused.weights, fused.training)
        self.fused = fused

    def _filter_randomness(self, members, axes, cut, device):
        drawn = self.fused._filter_randomness(members, axes, cut, device)
        sizes = (cut.steps, cut.sequences, self.spec.particles)
        normal = fill_normal(drawn.normal, *sizes, self.spec.hidden)
        return Randomness(normal, fill_uniform(drawn.normal, *sizes), drawn.initial)

    def _dropout_uniform(self, *arguments):
        return self.fused._dropout_uniform(*arguments)


def one_step(problem, path, count=6):
    """Loss and gradients of a step, what it leaves beside the parameters, and a prediction."""
    one = OneStep(problem, path, final_members(SETTING, 2, 1, "toy"), count)
    shift = one.population.parameters.get("core.cell.norm_shift")
    if shift is not None and path.spec.kind == "plain":
        # Away from ReLU's kink, where rounding decides: a unit that is the same in all
        # sequences is normalised to 0.
        shift.copy_(0.1 + 0.01 * torch.arange(shift.numel()).view(shift.shape))
    start = {name: value.clone() for name, value in one.population.parameters.items()}
    predicted, gradients = one.losses()
    one.train()
    # Evaluate one state with both: RMSprop turns a zero gradient's rounding into a step.
    for name, value in one.population.parameters.items():
        value.copy_(start[name])
    ahead = one.predict("validation", 0, 3)
    after = [*one.population.buffers.values(), one.population.sums]
    return [predicted.loss, *gradients.values(), *after, ahead.loss, ahead.output.prediction]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "dropout", "switches"),
    [
        ("toy_regression", "pf_lstm", 0.0, {}),
        ("toy_classes", "pf_gru", 0.5, {}),
        ("toy_regression", "pf_lstm_noelbo", 0.5, RELEASE),
    ],
)
def test_a_filters_step_is_the_plain_paths(tmp_path, monkeypatch, name, model, dropout, switches):
    monkeypatch.setenv(dispatch.VARIABLE, "fused")
    patches = {"network": {"dropout": dropout}, "filter": {"switches": switches}}
    problem, fused = world(tmp_path, name, model, DEVICE, **patches)
    assert isinstance(fused, FusedPath), fused.reason
    # The plain loop's products are float32.
    fused.network.core.run = functools.partial(run_pf_fused, precision="ieee")
    ends = [one_step(problem, path) for path in (fused, Given(fused))]
    for first, second in zip(*ends, strict=True):
        # Both in float32 with sums in another order.
        torch.testing.assert_close(first, second, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("toy_regression", "lstm_bnrelu"),
        ("toy_classes", "gru"),
        ("maze10", "bayes_lstm"),
    ],
)
def test_a_plain_rnns_step_is_the_plain_paths(tmp_path, monkeypatch, name, model):
    monkeypatch.setenv("PFRNN_GRAPHS", "0")
    ends = []
    for way in ("plain", "fused"):
        monkeypatch.setenv(dispatch.VARIABLE, way)
        problem, path = world(tmp_path / way, name, model, DEVICE)
        assert path.name == way
        ends.append(one_step(problem, path))
    for first, second in zip(*ends, strict=True):
        # Both in float32 with sums in another order. The gradient of a bias before batch norm is
        # zero but for rounding: errors of 1.0e-5 (plain) and 1.4e-5 (fused) against float64.
        torch.testing.assert_close(first, second, rtol=1e-3, atol=3e-5)


@pytest.mark.slow
def test_particles_start_where_the_members_seed_says(tmp_path, monkeypatch):
    """Not from torch's own generator: a resumed run would start elsewhere."""
    monkeypatch.setenv(dispatch.VARIABLE, "fused")
    switches = {"switches": {"initial_state": "uniform"}}
    problem, fused = world(tmp_path, "toy_regression", "pf_lstm", DEVICE, filter=switches)
    one = OneStep(problem, fused, final_members(SETTING, 3, 1, "toy"), 6)

    def starts(members, *axes):
        before = torch.get_rng_state()
        found = fused.training_randomness(members, axes, one.cut, DEVICE).initial
        assert torch.equal(torch.get_rng_state(), before)
        return found

    first = starts(one.members, "train", 1, 0)
    assert first.shape == (2, 3, 6, 4, 5)
    assert 0 <= float(first.min())
    assert float(first.max()) < 1
    assert first.unique().numel() > 0.99 * first.numel()
    assert torch.equal(first, starts(one.members, "train", 1, 0))
    assert torch.equal(first[:, 1:2], starts(one.members[1:2], "train", 1, 0))
    for other in (("train", 1, 1), ("train", 2, 0), ("validation", 1, 0)):
        assert not torch.equal(first, starts(one.members, *other))


def test_what_is_asked_for(tmp_path, monkeypatch):
    problem, plain = world(tmp_path, "toy_regression", "lstm")

    def chosen(way):
        monkeypatch.setenv(dispatch.VARIABLE, way)
        return choose_path(plain.spec, variant("lstm"), problem.config, 40, CPU)

    # Nobody gets the interpreter without asking for the kernels.
    assert (chosen("auto").name, chosen("auto").reason) == ("plain", "torch's eager mode")
    assert (chosen("plain").name, chosen("plain").reason) == ("plain", "PFRNN_KERNELS=plain")
    with pytest.raises(ConfigError, match="expected one of auto, fused, compiled, plain"):
        chosen("fastest")
    monkeypatch.setattr(dispatch, "interpreted", lambda: False)
    with pytest.raises(ConfigError, match="the kernels refuse: the kernels run on a CUDA GPU"):
        chosen("fused")
    monkeypatch.setenv(dispatch.VARIABLE, "auto")
    monkeypatch.setenv("PFRNN_GRAPHS", "yes")
    with pytest.raises(ConfigError, match="expected 0 or 1, got 'yes'"):
        chosen("auto")


def test_the_configuration_names_the_precision_of_the_kernels_products(tmp_path, monkeypatch):
    _, plain = world(tmp_path, "toy_regression", "pf_lstm")
    assert type(plain) is PlainPath
    assert "CUDA" in plain.reason
    asked = []

    def choose(problem, precision):
        asked.append(precision)
        return dispatch.Choice("plain", "a stand-in", plain.network.core.run)

    monkeypatch.setattr(dispatch, "choose", choose)
    particle_path(plain.spec, plain.weights, plain.training, CPU, "ieee")
    assert asked == ["ieee"]


@pytest.mark.parametrize("partly", [False, True])
def test_the_kernels_update_is_the_plain_one(partly):
    """Members of other settings, one that has stopped and one without a finite gradient."""
    draws = torch.Generator().manual_seed(0)
    shapes = {"a.weight": (5, 7), "a.bias": (7,), "b.weight": (130, 3), "single": (1, 1)}
    stack = {
        name: torch.randn(5, *shape, generator=draws).to(DEVICE) for name, shape in shapes.items()
    }
    flat = Flat(stack), Flat({name: torch.zeros_like(value) for name, value in stack.items()})
    plain = stack, {name: torch.zeros_like(value) for name, value in stack.items()}
    assert all(value.storage_offset() % ALIGNMENT == 0 for value in flat[0].values())
    settings = hyper(search_members([*SETTINGS, SETTINGS[0], SETTINGS[0]], 1, "toy"), DEVICE)
    alive = torch.tensor([True, True, True, False, True], device=DEVICE)

    def decays(name):
        return not (partly and name.endswith("bias"))

    kernel = FlatRMSprop(*flat, settings, decays)
    for step in range(3):
        gradients = {
            name: torch.randn(value.shape, generator=draws).to(DEVICE)
            for name, value in stack.items()
        }
        if step == 1:
            gradients["a.bias"][4, 0] = float("nan")
        found = kernel.update(gradients, 0.95, 1e-7, alive)
        expected = rmsprop(plain[0], gradients, plain[1], settings, 0.95, 1e-7, alive, decays)
        torch.testing.assert_close(found.gradient_norm, expected.gradient_norm, equal_nan=True)
        assert torch.equal(found.moves, expected.moves)
        before = flat[0]["a.weight"].clone()
        assert torch.equal(before, flat[0]["a.weight"]), "written only when asked to"
        found.write()
        expected.write()
        for one, other in zip(flat, plain, strict=True):
            for name, value in other.items():
                torch.testing.assert_close(one[name], value, rtol=2e-6, atol=2e-7)
        alive = found.moves
    assert torch.equal(flat[0]["a.weight"][3], stack["a.weight"][3])
