"""The kernels compile for real GPUs and fit them: without a GPU, by Triton's bundled ptxas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

ROOT = Path(__file__).parents[2]
KERNELS = {
    "prologue_kernel", "forward_kernel", "backward_kernel", "weight_gradient_kernel",
    "fill_uniform_kernel",
}  # fmt: skip
# Bytes of shared memory that a program may have, and a multiprocessor has, by capability.
BLOCK, WHOLE, RESERVED = {90: 232448, 89: 101376}, 233472, 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "capability", "precision", "particles", "units", "outputs", "choice"),
    [
        ("pf_lstm", 90, "tf32", 30, 64, 1, "own"),
        ("pf_gru", 90, "tf32", 30, 64, 1, "crowded"),
        # Many particles: each backward step as two launches.
        pytest.param("pf_lstm", 90, "tf32", 60, 64, 0, "own", marks=pytest.mark.nightly),
        pytest.param("pf_lstm", 90, "tf32", 30, 64, 1, "crowded", marks=pytest.mark.nightly),
        pytest.param("pf_gru", 89, "ieee", 30, 64, 4, "own", marks=pytest.mark.nightly),
        # The widest layer; factors of 128 units fill the shared memory.
        pytest.param("pf_lstm", 90, "tf32", 30, 128, 4, "own", marks=pytest.mark.nightly),
    ],
)
def test_a_training_step_compiles(
    cell: str, capability: int, precision: str, particles: int, units: int, outputs: int,
    choice: str, tmp_path: Path,
) -> None:  # fmt: skip
    arguments = map(str, (cell, capability, precision, particles, units, outputs, choice))
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compiled_only", *arguments],
        cwd=ROOT,
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shared, once, often, dependent = json.loads(done.stdout.splitlines()[-1])
    assert set(shared) == KERNELS
    assert max(shared.values()) <= BLOCK[capability], shared
    if choice == "crowded":
        # The choice counts on three of its programs a multiprocessor.
        assert 3 * (shared["backward_kernel"] + RESERVED) <= WHOLE
    # No more for other batches and populations: each would cost a job seconds.
    assert once == often
    # Dependent launches came with compute capability 9.0.
    large = ["backward_kernel", "forward_kernel"]
    assert dependent == (large if capability == 90 else [])
