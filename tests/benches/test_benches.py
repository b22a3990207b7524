"""Each benchmark runs, small, on the CPU, and writes what it says; its --help says how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("triton", reason="the step benchmark imports the kernels: pip install triton")

from bench import compiled, curves, epochs, population_cpu, two_gpus
from bench.blocks import Ask, block_of, planned, sizes_of
from pfrnn.errors import ConfigError
from pfrnn.study.plan import load_plan

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


@pytest.mark.parametrize("tier", ["gpu", "smoke"])
def test_the_slice_of_two_cards_is_eight_blocks_whatever_the_tier(tier):
    patch = yaml.safe_load(two_gpus.slice_of(4000, 10))
    plan = load_plan(ROOT / "params.yaml", tier, patch)
    assert (len(plan.blocks), len(plan.cells)) == (8, 8)
    assert plan.config.for_dataset("maze10").training.max_epochs == 10


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


def test_curves_recorded_earlier_stand_in_where_they_are_of_the_same_training(tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    asked = [*SMALL, "--variant", "pf_gru", "--seeds", "2", "--epochs", "2"]
    curves.main([*asked, "--ways", "plain", "launched", "--output", str(first)])
    record = read(first) | {"commit": "0" * 40}
    first.write_text(json.dumps(record))
    later = [*asked, "--ways", "plain", "launched", "--earlier", str(first), "--again", "1"]
    curves.main([*later, "--output", str(second)])
    taken = read(second)["curves"][1]
    assert taken["commit"] == "0" * 40
    assert taken["scores"] == record["curves"][1]["scores"]
    assert taken["again"]["largest_relative_difference"] == 0.0
    assert taken["again"]["scores"] == [scores[:1] for scores in taken["scores"]]
    # Other data, other epochs, no such way, other seeds.
    for change, told in (
        ({"train": 7}, "expected train"),
        ({"tier": "quick"}, "expected tier 'smoke', got 'quick'"),
        ({"curves": record["curves"][:1]}, "no curves of launched"),
        ({"curves": [one | {"scores": [[1.0]]} for one in record["curves"]]}, "2 epochs, got 1"),
        ({"curves": [one | {"seeds": [1, 2]} for one in record["curves"]]}, "recorded seeds"),
        ({"curves": [one | {"seeds": [1]} for one in record["curves"]]}, "2 seeds, got 1"),
    ):
        first.write_text(json.dumps(record | change))
        with pytest.raises(ValueError, match=told):
            curves.main([*later, "--output", str(second)])
    for again in ("0", "3"):
        with pytest.raises(SystemExit):
            curves.main([*later[:-1], again, "--output", str(second)])


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
    "name", ["epochs", "curves", "steps", "population_cpu", "layers", "compiled", "sharing"]
)
def test_help(name):
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "--" in done.stdout


@pytest.mark.slow
def test_compiled_programs_are_described_without_a_gpu(tmp_path):
    output = tmp_path / "compiled.json"
    command = [sys.executable, str(ROOT / "bench" / "compiled.py"), "--sizes", "4x16"]
    command += ["--set", "backward_warps=8", "split=true", "--output", str(output)]
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = read(output)["rows"]
    assert [(row["kernel"], row["part"], bool(row["tuning"])) for row in rows] == [
        ("forward", "whole", False), ("backward", "whole", False),
        ("weight_gradient", "whole", False), ("forward", "whole", True),
        ("backward", "finish", True), ("backward", "start", True),
        ("weight_gradient", "whole", True),
    ]  # fmt: skip
    assert [row["block_warps"] for row in rows if row["kernel"] == "backward"] == [4, 8, 8]
    for row in rows:
        assert 16 <= row["registers"] <= 255
        assert row["spill_stores"] == row["wrong"] == 0  # tiles of 16 units fit the registers
        assert row["warps"] == row["blocks"] * row["block_warps"] > 0
    # Everything that was compiled is on screen, too.
    assert done.stdout.count("\n") == 1 + len(rows)


def test_what_a_multiprocessor_holds():
    """Registers, warps, blocks and shared memory of 9.0; by hand, from the programming guide."""
    kib = 1024
    # 65,536 registers are two blocks of 128 threads with 255 (256 are given), or three with 168.
    assert compiled.resident(90, 255, 8 * kib, 4) == 2
    assert compiled.resident(90, 168, 8 * kib, 4) == 3
    assert compiled.resident(90, 129, 8 * kib, 8) == 1
    assert compiled.resident(90, 128, 8 * kib, 8) == 2
    # 228 KiB are one block of 114, since each takes one more; two of 113.
    assert compiled.resident(90, 32, 114 * kib, 4) == 1
    assert compiled.resident(90, 32, 113 * kib, 4) == 2
    assert compiled.resident(90, 32, 227 * kib, 4) == 1
    assert compiled.resident(90, 32, 227 * kib + 1, 4) == 0
    # 64 warps, 32 blocks.
    assert compiled.resident(90, 16, 0, 4) == 16
    assert compiled.resident(90, 16, 0, 1) == 32


def test_a_tunings_words():
    words = ["split=true", "backward_registers=none", "backward_warps=8"]
    expected = {"split": True, "backward_registers": None, "backward_warps": 8}
    assert compiled.tuning_changes(words) == expected
    with pytest.raises(ValueError, match="expected one of forward_rows"):
        compiled.tuning_changes(["rows=8"])


def test_work_is_that_of_all_warps():
    group = "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32"
    warp = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    assert compiled.work(group, 4) == 2 * 64 * 32 * 8
    assert compiled.work(f"{group}\n{group}", 8) == 4 * 2 * 64 * 32 * 8
    assert compiled.work(warp, 8) == 8 * 2 * 16 * 8 * 8


def test_spills_are_counted_in_bytes():
    code = """
        /*0010*/                   STL [R1+0x10], R2 ;
        /*0020*/              @!P1 STL.64 [R1+0x8], R4 ;
        /*0030*/                   LDL.LU R2, [R1+0x10] ;
        /*0040*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0050*/                   STL.128 [R1], R8 ;
"""
    assert compiled.spilled(code, "STL") == 4 + 8 + 16
    assert compiled.spilled(code, "LDL") == 4
