"""The step benchmark, without a GPU: what it times, and what it writes of that."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the step benchmark imports the kernels: pip install triton")

import matplotlib
import torch

from bench import shapes, step_models, steps
from bench.step_models import Size, choice_of, reference_step, trained
from pfrnn.kernels import dispatch
from pfrnn.kernels.graph import EagerCapture
from pfrnn.kernels.plan import Tuning, tuning_for
from pfrnn.study.train.optimiser import Hyper, rmsprop


def read(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.fixture
def stand_ins(monkeypatch):
    """Steps that do nothing where the real ones need a GPU, and a card that the kernels take."""
    asked = []

    def step(*arguments):
        asked.append(arguments)
        if getattr(arguments[0], "hidden", 0) == 128:
            raise RuntimeError("out of shared memory")
        return lambda: None

    for name in ("fused_step", "plain_step", "cudnn_step", "rnn_step", "reference_step"):
        monkeypatch.setattr(steps, name, step)
    monkeypatch.setattr(steps, "warm_all", lambda jobs: None)
    monkeypatch.setattr(steps, "check", lambda size, tuning: {"gap": 0.0, "repeats": True})
    monkeypatch.setattr(dispatch, "device_refusal", lambda device: None)
    return asked


def test_steps_keeps_what_an_earlier_session_measured(tmp_path, stand_ins):
    output = tmp_path / "steps.json"
    steps.main(["--output", str(output), "--sections", "rnn", "scaling", "--axes", "members"])
    steps.main(["--output", str(output), "--sections", "scaling", "--axes", "hidden"])
    result = read(output)
    assert {row["way"] for row in result["rnn"]} > {"cuDNN"}
    assert [row["axis"] for row in result["scaling"]] == ["members"] * 8 + ["hidden"] * 4
    # A size that fails is a result, too.
    assert result["scaling"][-2]["error"] == "out of shared memory"
    steps.main(["--output", str(output), "--plot", str(tmp_path / "scaling.png")])
    assert (tmp_path / "scaling.png").stat().st_size > 1000
    assert set(result["commits"]) == {"rnn", "scaling"}
    # A file from before a choice came into the code is of the same tuning.
    older = {name: value for name, value in result["tuning"].items() if name != "backward_early"}
    output.write_text(json.dumps(result | {"tuning": older}))
    steps.main(["--output", str(output), "--sections", "rnn"])
    assert "scaling" in read(output)
    # One from before float16 factors were the default had none.
    older = {name: value for name, value in result["tuning"].items() if name != "narrow"}
    output.write_text(json.dumps(result | {"tuning": older}))
    steps.main(["--output", str(output), "--sections", "rnn"])
    assert "scaling" not in read(output)
    # Of another card: kept beside.
    output.write_text(json.dumps(result | {"card": "another"}))
    steps.main(["--output", str(output), "--sections", "rnn"])
    assert "scaling" not in read(output)
    assert read(tmp_path / "steps.before.json")["card"] == "another"


def test_a_size_that_the_kernels_refuse_is_timed_as_the_product_computes_it(tmp_path, stand_ins):
    output = tmp_path / "steps.json"
    steps.main(["--output", str(output), "--sections", "scaling", "--axes", "hidden"])
    small, *_, wide = read(output)["scaling"]
    assert (small["hidden"], small["way"], small["precision"]) == (32, "fused", "tf32")
    assert "reason" not in small
    assert (wide["hidden"], wide["precision"]) == (256, "ieee")
    # Without a GPU the product would not compile the step.
    assert wide["way"] == "plain"
    assert wide["reason"] == "256 hidden units are more than 128"
    assert wide["ms"] >= 0
    # Nor is anything compiled for it ahead of time.
    steps.warm("hidden", 256, {})
    assert [arguments[0].hidden for arguments in stand_ins] == [32, 64, 128, 256]


def test_the_step_that_replaces_the_kernels_trains():
    """The members' noise is their own and new in every step; a replay moves the parameters."""
    size = Size("pf_gru", members=2, steps=3, batch=2, particles=4, hidden=5, inputs=3, encoder=4)
    seen, cpu = [], torch.device("cpu")
    choice = choice_of(size, cpu)
    assert choice.name == "plain"

    def run(projected, state, noise, uniforms, *arguments, **options):
        out = choice.run(projected, state, noise, uniforms, *arguments, **options)
        seen.append((noise.clone(), uniforms.clone(), out.read.detach().clone()))
        return out

    replay = reference_step(size, run, cpu, EagerCapture)
    replay()
    replay()
    assert len(seen) == 4
    for noise, uniforms, read_out in seen:
        assert (noise.shape, uniforms.shape) == ((3, 2, 2, 4, 5), (3, 2, 2, 4))
        assert read_out.shape == (3, 2, 2, 4, 1)
        assert read_out.isfinite().all()
        assert not torch.equal(noise[:, 0], noise[:, 1])
    assert not torch.equal(seen[2][0], seen[3][0])
    assert not torch.equal(seen[2][2], seen[3][2])


def test_shapes_are_timed_beside_the_default(tmp_path, stand_ins):
    output = tmp_path / "steps.json"
    steps.main(["--output", str(output), "--sections", "shapes"])
    rows = read(output)["shapes"]
    by_size = {("particles", 60): 5, ("hidden", 128): 5}
    for (axis, value), count in by_size.items():
        own = [row for row in rows if row["axis"] == axis]
        assert [row[axis] for row in own] == [value] * count
        assert own[0]["tuning"] == {}
    assert all(row["repeats"] for row in rows if row["particles"] == 60)
    # The stand-in fails at 128 units: rows too, and none is lost.
    assert all("error" in row for row in rows if row["hidden"] == 128)
    asked_for = [arguments[1] for arguments in stand_ins]
    assert [tuning.split for tuning in asked_for[:5]] == [True, False, False, True, True]
    # The code's own, and what it was before.
    smaller = Tuning(crowd=False)
    assert asked_for[0:2] == [tuning_for(60, 64), smaller]
    assert asked_for[5:7] == [tuning_for(30, 128), smaller]


def test_a_tunings_numbers_are_compared_with_the_codes_own(monkeypatch):
    size = Size(members=12, particles=60)
    made, own, whole = [], tuning_for(60, 64), Tuning()
    noise = iter([0.0, 0.0, 1e-3])

    def gradients(small, tuning):
        made.append((small.members, small.steps, small.particles, tuning))
        return torch.tensor([3.0, 4.0 + (0 if tuning.split else 0.05)]) + next(noise)

    monkeypatch.setattr(shapes, "gradients", gradients)
    found = shapes.check(size, whole)
    assert found["gap"] == pytest.approx(0.01, rel=1e-5)
    assert found["repeats"] is False
    assert made == [(2, 4, 60, own), (2, 4, 60, whole), (2, 4, 60, whole)]
    noise = iter([0.0, 0.0, 0.0])
    assert shapes.check(size, own) == {"gap": 0.0, "repeats": True}


def test_what_is_compiled_ahead_has_no_size_twice():
    jobs = steps.to_warm(["scaling", "shapes"], list(steps.SCALING))
    assert ("particles", 60, {}) in jobs
    assert all(jobs.count(job) == 1 for job in jobs)
    # As the process that compiles it reads it.
    assert [tuple(json.loads(json.dumps(job))) for job in jobs] == jobs
    assert steps.to_warm(["rnn"], list(steps.SCALING)) == []


def test_the_plain_module_is_timed_twice_and_the_faster_median_counts(
    tmp_path, stand_ins, monkeypatch
):
    # A first plain timing of 300 to 500 ms, later ones of 200 to 400; the whole step takes 500,
    # then 450 ms; kernels take 12 ms.
    less = iter([[300.0, 400.0, 500.0], [200.0, 250.0, 400.0], [5.0], [6.0]])
    more = iter([[500.0], [450.0], [7.0], [8.0]])
    made = {}

    def plain_step(size, whole):
        made[whole] = lambda: whole
        return made[whole]

    def timed(step, repeats=10):
        if step not in made.values():
            return [12.0]
        return next(more if step() else less)

    monkeypatch.setattr(steps, "plain_step", plain_step)
    monkeypatch.setattr(steps, "timed", timed)
    output = tmp_path / "steps.json"
    steps.main(["--output", str(output), "--sections", "steps"])
    rows = [row for row in read(output)["steps"] if row["cell"] == "pf_lstm"]
    before, whole_before, *fused, after, whole_after = rows
    assert (before["when"], before["ms"]) == ("before", 400.0)
    assert (before["fastest"], before["slowest"]) == (300.0, 500.0)
    assert (after["when"], after["ms"], after["repeats"]) == ("after", 250.0, 3)
    assert (whole_before["ms"], whole_after["ms"]) == (500.0, 450.0)
    assert [row["way"] for row in fused] == ["fused"] * 3
    assert [row["times_plain"] for row in fused] == [250 / 12, 250, 750]
    assert [row["times_whole"] for row in fused] == [450 / 12, 450, 1350]


def test_steps_are_timed_ten_times_unless_said_otherwise():
    calls = []
    assert len(steps.timed(lambda: calls.append(1))) == 10
    assert len(calls) == 12


def test_the_picture_tells_ways_apart_and_names_its_centre(tmp_path):
    rows = [
        Size(members=12, hidden=h)._asdict() | {"axis": "hidden", "ms_per_member": h / 64, "way": w}
        for h, w in ((64, "fused"), (128, "fused"), (256, "compiled"))
    ]
    rows += [Size(members=m)._asdict() | {"axis": "members", "ms_per_member": 1} for m in (1, 72)]
    rows.append(Size(members=12, hidden=512)._asdict() | {"axis": "hidden", "error": "no"})
    source, target = tmp_path / "steps.json", tmp_path / "scaling.svg"
    source.write_text(json.dumps({"card": "a card", "scaling": rows}))
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        steps.main(["--output", str(source), "--plot", str(target)])
    words = target.read_text()
    for text in ("a card; batch 64, K 30, H 64, T 100, members 12", ">fused<", ">compiled<"):
        assert text in words, text
    assert ">plain<" not in words


def test_the_timed_step_is_the_products_update():
    """The bits of the training loop's update, on a loss of which the gradient is known."""
    start = {"a": torch.randn(2, 3, 4), "b": torch.randn(2, 5)}
    population = trained(start)
    population.update(lambda p: p["a"].square().sum((1, 2)) + 2 * p["b"].sum(1))
    gradients = {"a": 2 * start["a"], "b": torch.full((2, 5), 2.0)}
    settings = Hyper(*(torch.full((2,), value) for value in (3e-4, 5.0, 1e-4)))
    zeros = {name: torch.zeros_like(value) for name, value in start.items()}
    alive = torch.ones(2, dtype=torch.bool)
    expected = rmsprop(start, gradients, zeros, settings, 0.99, 1e-8, alive)
    for name, value in expected.parameters.items():
        assert torch.equal(population.parameters[name], value)
        assert torch.equal(population.optimiser.square_average[name], expected.square_average[name])


@pytest.mark.parametrize("cell", ["pf_lstm", "pf_gru"])
def test_the_whole_plain_step_is_the_populations(cell, monkeypatch):
    """Its loss has prediction loss and ELBO, its gradient is clipped, its weights decay."""
    seen = {}
    clip = torch.nn.utils.clip_grad_norm_

    def clipped(parameters, limit):
        seen["limit"], seen["norm"] = limit, float(clip(parameters, limit))
        return seen["norm"]

    class RMSprop(torch.optim.RMSprop):
        def __init__(self, *arguments, **named):
            seen["decay"] = named["weight_decay"]
            super().__init__(*arguments, **named)

    size = step_models.Size(cell, steps=3, batch=4, particles=5, hidden=6, inputs=2, encoder=7)
    original = step_models.training_loss
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clipped)
    monkeypatch.setattr(torch.optim, "RMSprop", RMSprop)
    monkeypatch.setattr(
        step_models, "training_loss", lambda *rest: seen.update(terms=rest) or original(*rest)
    )
    torch.manual_seed(0)
    step_models.plain_step(size, whole=True, device="cpu")()
    guesses, log_weights, y = (value.detach() for value in seen["terms"])
    assert guesses.shape == log_weights.shape == (3, 4, 5)
    torch.testing.assert_close(log_weights.exp().sum(-1), torch.ones(3, 4))
    assert y.shape == (3, 4)
    assert (seen["limit"], seen["decay"]) == (5.0, 1e-4)
    assert 0 < seen["norm"] < float("inf")
    seen.clear()
    step_models.plain_step(size, device="cpu")()
    assert seen.keys() == {"decay"}
    assert seen["decay"] == 0.0


def test_the_training_loss_by_hand():
    # One step, one sequence, two particles with weights 1/4 and 3/4: mean 2.5, target 1; the ELBO's
    # particles are 0 and 2 from it.
    guesses, y = torch.tensor([[1.0, 3.0]]), torch.tensor([1.0])
    log_weights = torch.tensor([[0.25, 0.75]]).log()
    expected = 1.5**2 - math.log(1 + math.exp(-2))
    assert step_models.training_loss(guesses, log_weights, y).item() == pytest.approx(expected)
