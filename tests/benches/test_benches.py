"""Each benchmark runs, small, on the CPU, and writes what it says; its --help says how."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the step benchmark imports the kernels: pip install triton")

from bench import curves, epochs, population_cpu
from bench.blocks import Ask, block_of, planned, sizes_of
from pfrnn.errors import ConfigError

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


def asked(model: str, tier: str = "gpu", batch: int = 32, **more) -> Ask:
    return Ask("maze10", model, batch, 1, tier=tier, overrides=sizes_of("maze10", 20, 10) | more)


@pytest.mark.parametrize(
    ("model", "trained", "particles"),
    [
        ("pf_lstm", "pf_lstm", 30),
        ("gru", "gru", 0),
        ("pf_lstm_p5", "pf_lstm", 5),
        ("pf_lstm_paper_batch_norm", "pf_lstm_paper_batch_norm", 30),
    ],
)
def test_the_block_is_of_the_variant_asked_for(model, trained, particles):
    """Tier gpu has its own list of variants for maze10, lstm first."""
    ask = asked(model)
    plan = planned(ask)
    block = block_of(plan, ask)
    assert (block.variant, block.particles, block.batch_size) == (trained, particles, 32)
    assert [cell.variant for cell in plan.cells] == [model]


def test_a_sets_own_epochs_do_not_win_over_those_asked_for():
    ask = asked("pf_lstm", "quick", training={"max_epochs": 3, "patience": 3})
    assert planned(ask).config.for_dataset("maze10").training.max_epochs == 3


def test_a_block_that_is_not_planned_is_an_error():
    plan = planned(asked("lstm"))
    with pytest.raises(ConfigError, match=r"expected a block of pf_lstm on maze10.*lstm on maze10"):
        block_of(plan, asked("pf_lstm"))
    with pytest.raises(ConfigError, match="batch 64"):
        block_of(plan, asked("lstm", batch=64))


def test_a_row_names_what_trained(tmp_path):
    output = tmp_path / "epochs.json"
    # An ensemble is made of its single model, which is what its block trains.
    epochs.main(
        [*SMALL, "--variants", "gru_ensemble", "--ways", "launched", "--members", "1",
         "--epochs", "2", "--steps", "1", "--plain-steps", "1", "--output", str(output)]
    )  # fmt: skip
    (row,) = read(output)["rows"]
    assert (row["asked"], row["variant"]) == ("gru_ensemble", "gru")


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["epochs", "curves", "steps", "population_cpu", "layers", "compiled"]
)
def test_help(name):
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "--" in done.stdout
