"""Each benchmark runs, small, on the CPU, and writes what it says; its --help says how."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the step benchmark imports the kernels: pip install triton")

import torch

from bench import curves, epochs, population_cpu, steps
from bench.step_models import trained
from pfrnn.training.optimiser import Hyper, rmsprop

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--tier", "smoke", "--train", "20", "--validation", "10", "--batch", "8"]
SMALL += ["--device", "cpu"]


def read(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.mark.parametrize("variant", ["gru", "pf_lstm"])
def test_epochs(tmp_path, variant):
    output = tmp_path / "epochs.json"
    epochs.main(
        [*SMALL, "--variants", variant, "--ways", "launched", "--members", "2", "--epochs", "2",
         "--steps", "1", "--plain-steps", "1", "--output", str(output)]
    )  # fmt: skip
    result = read(output)
    assert result["card"] == "cpu"
    (row,) = result["rows"]
    assert row["variant"] == variant
    assert row["graph"] == "off: no CUDA graphs on cpu"
    assert row["status"] == ["completed"]
    for name in ("epoch_s", "ms_per_model_and_step", "step_ms", "plain_module_ms", "peak_gib"):
        assert row[name] > 0, name


def test_population_on_the_cpu(monkeypatch):
    monkeypatch.setattr(population_cpu, "MODELS", {"gru": population_cpu.MODELS["gru"]})
    (row,) = population_cpu.measure(1, ["smoke"])
    assert (row["model"], row["size"]) == ("gru", "smoke")
    assert row["population_4_ms"] > 0


def test_epochs_wants_an_epoch_that_counts():
    with pytest.raises(SystemExit):
        epochs.main(["--epochs", "1"])


def test_curves_of_one_path_differ_by_nothing(tmp_path):
    output, picture = tmp_path / "curves.json", tmp_path / "curves.png"
    curves.main(
        [*SMALL, "--variant", "pf_gru", "--ways", "plain", "launched", "--seeds", "2",
         "--epochs", "2", "--output", str(output), "--plot", str(picture)]
    )  # fmt: skip
    result = read(output)
    assert [one["way"] for one in result["curves"]] == ["plain", "launched"]
    assert result["comparison"]["best"]["differences"] == [0.0, 0.0]
    assert result["comparison"]["best"]["p_value"] == 1.0
    assert picture.stat().st_size > 1000


def test_curves_that_differ_are_told_apart():
    first = {"way": "a", "scores": [[3.0, 2.0, 1.0 + 0.01 * i] for i in range(5)]}
    second = {"way": "b", "scores": [[3.0, 2.0, 1.5 + 0.012 * i] for i in range(5)]}
    found = curves.compare(first, second)
    assert found["best"]["mean_difference"] == pytest.approx(0.504)
    assert found["best"]["p_value"] < 1e-6
    other = {"way": "c", "scores": [[3.0, 2.0, 1.0 + 0.01 * (4 - i)] for i in range(5)]}
    assert curves.compare(first, other)["best"]["p_value"] > 0.9


@pytest.fixture
def stand_ins(monkeypatch):
    """Steps that do nothing where the real ones need a GPU."""
    asked = []

    def step(*arguments):
        asked.append(arguments)
        if getattr(arguments[0], "hidden", 0) == 256:
            raise RuntimeError("out of shared memory")
        return lambda: None

    for name in ("fused_step", "plain_step", "cudnn_step", "rnn_step"):
        monkeypatch.setattr(steps, name, step)
    monkeypatch.setattr(steps, "warm_all", lambda axes: None)
    return asked


def test_steps_keeps_what_an_earlier_session_measured(tmp_path, stand_ins):
    output = tmp_path / "steps.json"
    steps.main(["--output", str(output), "--sections", "rnn", "scaling", "--axes", "members"])
    steps.main(["--output", str(output), "--sections", "scaling", "--axes", "hidden"])
    result = read(output)
    assert {row["way"] for row in result["rnn"]} > {"cuDNN"}
    assert [row["axis"] for row in result["scaling"]] == ["members"] * 8 + ["hidden"] * 4
    # A size that fails is a result, too.
    assert result["scaling"][-1]["error"] == "out of shared memory"
    steps.main(["--output", str(output), "--plot", str(tmp_path / "scaling.png")])
    assert (tmp_path / "scaling.png").stat().st_size > 1000
    # Of another card: kept beside.
    output.write_text(json.dumps(result | {"card": "another"}))
    steps.main(["--output", str(output), "--sections", "rnn"])
    assert "scaling" not in read(output)
    assert read(tmp_path / "steps.before.json")["card"] == "another"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["epochs", "curves", "steps", "population_cpu", "layers"])
def test_help(name):
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "--" in done.stdout


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
