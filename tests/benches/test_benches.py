"""The benchmarks of epochs and layers run, small, on the CPU, and write what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the benchmarks import the kernels: pip install triton")

from bench import epochs
from bench.blocks import Ask, block_of, planned, sizes_of
from pfrnn.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--tier", "smoke", "--train", "20", "--validation", "10", "--batch", "8"]
SMALL += ["--device", "cpu", "--ways", "launched", "--members", "2", "--epochs", "2"]
SMALL += ["--steps", "1", "--plain-steps", "1"]


# An ensemble is made of its single model, which is what its block trains.
@pytest.mark.parametrize(("asked", "trained"), [("pf_lstm", "pf_lstm"), ("gru_ensemble", "gru")])
def test_epochs(tmp_path, asked, trained):
    output = tmp_path / "epochs.json"
    epochs.main([*SMALL, "--variants", asked, "--output", str(output)])
    result = json.loads(output.read_text())
    (row,) = result["rows"]
    assert (result["card"], row["asked"], row["variant"]) == ("cpu", asked, trained)
    assert row["graph"] == "off"
    assert row["status"] == ["completed"]
    for name in ("epoch_s", "ms_per_model_and_step", "step_ms", "plain_module_ms", "peak_gib"):
        assert row[name] > 0, name


def asked(model: str, tier: str = "gpu", batch: int = 32, **more) -> Ask:
    return Ask("maze10", model, batch, 1, tier=tier, overrides=sizes_of("maze10", 20, 10) | more)


def test_the_block_is_of_the_variant_asked_for():
    """Tier gpu has its own list of variants for maze10, lstm first."""
    ask = asked("pf_lstm_p5")
    plan = planned(ask)
    block = block_of(plan, ask)
    assert (block.variant, block.particles, block.batch_size) == ("pf_lstm", 5, 32)
    assert [cell.variant for cell in plan.cells] == ["pf_lstm_p5"]
    with pytest.raises(ConfigError, match="batch 64"):
        block_of(plan, asked("pf_lstm_p5", batch=64))


def test_a_sets_own_epochs_do_not_win_over_those_asked_for():
    ask = asked("pf_lstm", "quick", training={"max_epochs": 3, "patience": 3})
    assert planned(ask).config.for_dataset("maze10").training.max_epochs == 3


def test_layers(tmp_path):
    command = [sys.executable, "bench/layers.py", "--batch", "2", "--steps", "3", "--hidden", "4"]
    command += ["--repeats", "1", "--output", str(tmp_path / "layers.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "layers.json").exists()
