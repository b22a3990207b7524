"""The step benchmark, without a GPU: what it times, and what it writes of that."""

from __future__ import annotations

import json
import math

import pytest
import torch

pytest.importorskip("triton", reason="the step benchmark imports the kernels: pip install triton")

from bench import step_models, steps
from bench.step_models import trained
from pfrnn.study.train.optimiser import Hyper, rmsprop


@pytest.fixture
def stand_ins(monkeypatch):
    """Steps that do nothing where the real ones need a GPU; one size fails."""

    def step(size, *rest):
        if getattr(size, "hidden", 0) == 128:
            raise RuntimeError("out of shared memory")
        return lambda: None

    for name in ("fused_step", "plain_step", "cudnn_step", "rnn_step"):
        monkeypatch.setattr(steps, name, step)


def test_a_file_keeps_its_other_sections(tmp_path, stand_ins):
    output = tmp_path / "steps.json"
    steps.main(["--output", str(output), "--sections", "rnn"])
    steps.main(["--output", str(output), "--sections", "scaling"])
    result = json.loads(output.read_text())
    assert set(result["commits"]) == {"rnn", "scaling"}
    assert {row["members"] for row in result["rnn"]} == {1, 6, 36}
    hidden = [row for row in result["scaling"] if row["axis"] == "hidden"]
    assert [row.get("error") for row in hidden] == [None, None, "out of shared memory"]
    output.write_text(json.dumps(result | {"card": "another"}))
    with pytest.raises(SystemExit, match="measured on another"):
        steps.main(["--output", str(output), "--sections", "rnn"])


def test_the_faster_median_of_the_plain_module_counts(tmp_path, stand_ins, monkeypatch):
    """Less to do: 400 ms before, 250 after; the whole step 500 and 450; the kernels 12."""
    plain = {False: iter([[300.0, 400.0, 500.0], [200.0, 250.0, 400.0]] * 2),
             True: iter([[500.0], [450.0]] * 2)}  # fmt: skip
    monkeypatch.setattr(steps, "plain_step", lambda size, whole: whole)
    monkeypatch.setattr(
        steps, "timed", lambda step: next(plain[step]) if step in (False, True) else [12.0]
    )
    output = tmp_path / "steps.json"
    steps.main(["--output", str(output), "--sections", "steps"])
    rows = [row for row in json.loads(output.read_text())["steps"] if row["cell"] == "pf_lstm"]
    assert [row["ms"] for row in rows] == [400.0, 500.0, 12.0, 12.0, 12.0, 250.0, 450.0]
    fused = rows[2:5]
    assert [row["times_plain"] for row in fused] == [250 / 12, 250, 750]
    assert [row["times_whole"] for row in fused] == [450 / 12, 450, 1350]


def test_steps_are_timed_ten_times():
    calls = []
    assert len(steps.timed(lambda: calls.append(1))) == 10
    assert len(calls) == 12


def test_the_timed_step_is_the_products_update():
    """The training loop's update, on a loss of which the gradient is known."""
    start = {"a": torch.randn(2, 3, 4), "b": torch.randn(2, 5)}
    population = trained(start)
    population.update(lambda p: p["a"].square().sum((1, 2)) + 2 * p["b"].sum(1))
    gradients = {"a": 2 * start["a"], "b": torch.full((2, 5), 2.0)}
    settings = Hyper(*(torch.full((2,), value) for value in (3e-4, 5.0, 1e-4)))
    zeros = {name: torch.zeros_like(value) for name, value in start.items()}
    alive = torch.ones(2, dtype=torch.bool)
    expected = rmsprop(start, gradients, zeros, settings, 0.99, 1e-8, alive)
    expected.write()
    for name, value in start.items():
        torch.testing.assert_close(population.parameters[name], value, rtol=2e-6, atol=2e-7)


def test_the_training_loss_by_hand():
    # One step, one sequence, two particles with weights 1/4 and 3/4: mean 2.5, target 1; the ELBO's
    # particles are 0 and 2 from it.
    guesses, y = torch.tensor([[1.0, 3.0]]), torch.tensor([1.0])
    log_weights = torch.tensor([[0.25, 0.75]]).log()
    expected = 1.5**2 - math.log(1 + math.exp(-2))
    assert step_models.training_loss(guesses, log_weights, y).item() == pytest.approx(expected)
