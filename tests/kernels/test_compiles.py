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
# Shared memory that one block may have, CUDA programming guide, "compute capabilities".
SHARED = {"80": 163 * 1024, "89": 99 * 1024, "90": 227 * 1024}
KERNELS = {"forward_kernel", "backward_kernel", "weight_gradient_kernel", "fill_uniform_kernel"}


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "capability"), [("pf_lstm", "90"), ("pf_gru", "89")])
def test_a_training_step_compiles(cell: str, capability: str, tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compiled_only", cell, capability],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shared, once, often = json.loads(done.stdout.splitlines()[-1])
    assert set(shared) == KERNELS
    assert max(shared.values()) <= SHARED[capability], shared
    # Three of the forward kernel, three of the backward kernel, one of the others; and no more for
    # other batches and populations: each would cost a job seconds, and give sums another order.
    assert once == often == 8
    # Something was compiled: a machine program of each kernel lies in the cache.
    assert len({path.stem for path in tmp_path.rglob("*.cubin")}) >= len(KERNELS)
