"""The kernels compile for real GPUs and fit them: without a GPU, by Triton's bundled ptxas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from bench.compiled import MULTIPROCESSORS, RESERVED

from .machine_code import lost_zeros

ROOT = Path(__file__).parents[2]
KERNELS = {
    "begin_kernel",
    "forward_kernel",
    "backward_kernel",
    "weight_gradient_kernel",
    "in_order_kernel",
    "fill_uniform_kernel",
}
# Of factors that are kept as float16.
SCALE = {"peak_kernel", "half_scale_kernel"}

EARLY = ["backward_kernel", "forward_kernel"]


def compiled(module: str, arguments: Sequence[str | int], cache: Path) -> Any:
    """Run a script of this folder in a process of its own, which compiles; what it prints last."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.{module}", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: a program that two tests ask for is compiled once."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "capability", "precision", "particles", "units", "outputs"),
    [
        # Many particles: each backward step as two launches.
        ("pf_lstm", "90", "tf32", 60, 64, 0),
        ("pf_lstm", "90", "tf32", 30, 64, 1),
        ("pf_gru", "89", "tf32", 30, 64, 1),
        ("pf_lstm", "90", "bf16", 30, 64, 4),
        # The widest layer; factors of 128 units fill the shared memory.
        ("pf_lstm", "90", "tf32", 30, 128, 4),
    ],
)
def test_a_training_step_compiles(
    cell: str, capability: str, precision: str, particles: int, units: int, outputs: int,
    cache: Path,
) -> None:  # fmt: skip
    arguments = (cell, capability, precision, particles, units, outputs)
    shared, once, often, wrong, early = compiled("compiled_only", arguments, cache)
    assert wrong == []
    narrow = precision == "tf32" and units <= 64
    assert set(shared) == (KERNELS | SCALE if narrow else KERNELS)
    assert max(shared.values()) <= MULTIPROCESSORS[int(capability)].block_shared, shared
    # Three of the forward kernel, three of the backward kernel, one of the others; and no more for
    # other batches and populations: each would cost a job seconds, and give sums another order.
    assert once == often == (12 if narrow else 10)
    # Dependent launches came with compute capability 9.0.
    assert early == (EARLY if capability == "90" else [])
    # Something was compiled: a machine program of each kernel lies in the cache.
    assert {path.stem for path in cache.rglob("*.cubin")} >= set(shared)


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "capability"), [("pf_lstm", "90"), ("pf_gru", "90")])
def test_a_large_populations_training_step_compiles(
    cell: str, capability: str, cache: Path
) -> None:
    arguments = (cell, capability, "tf32", 30, 64, 1, "crowded")
    shared, once, often, wrong, early = compiled("compiled_only", arguments, cache)
    assert wrong == []
    assert set(shared) == KERNELS | SCALE
    block = MULTIPROCESSORS[int(capability)]
    assert max(shared.values()) <= block.block_shared, shared
    # The choice counts on three of its programs a multiprocessor.
    assert 3 * (shared["backward_kernel"] + RESERVED) <= block.shared
    # Two kernels a step: the first that starts one reads the very last tile, the last that ends
    # one has a cap.
    assert once == often == 13
    assert early == (EARLY if capability == "90" else [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "particles", "units"), [("pf_lstm", 30, 64), ("pf_gru", 30, 64), ("pf_lstm", 7, 33)]
)
def test_a_forward_launch_computes_the_same_early_or_not(
    cell: str, particles: int, units: int, cache: Path
) -> None:
    found = compiled("early_programs", (cell, particles, units), cache)
    assert len(found) == 2
    for begins, rest_is_the_same, unequal, count in found:
        assert len(begins) == 2
        assert "launch_dependents" in begins[0]
        assert "wait" in begins[1]
        assert rest_is_the_same
        assert unequal == {}
        assert count > 100


# What ptxas 12.8 made of the backward kernel with bf16 products and 32 particles a program.
LOST = """
        /*0f90*/                   ULEA UR50, UR4, UR50, 0x18 ;
        /*8210*/                   UIADD3 UR6, UP0, UR51, 0x40, URZ ;
        /*8270*/                   UIADD3.X UR7, UR51, -0x7fffffe0, URZ, UP0, !UPT ;
        /*d480*/              @!P1 UIADD3.X UR51, UR4, -0x7fffffe0, URZ, UP0, !UPT ;
"""
KEPT = """
        /*7fc0*/                   UMOV UR6, URZ ;
        /*7fd0*/                   UIADD3.X UR19, UR6, -0x7fffffe0, URZ, UP0, !UPT ;
        /*7fe0*/                   UIADD3.X UR21, URZ, 0x40000040, URZ, UP0, !UPT ;
        /*7ff0*/                   UIADD3.X UR7, UR5, URZ, URZ, UP1, !UPT ;
"""


def test_a_descriptor_made_from_another_register_is_seen() -> None:
    assert [line.split()[0] for line in lost_zeros(LOST)] == ["8270", "d480"]
    assert lost_zeros(KEPT) == []
    # Whatever is written between makes the register's content unknown again.
    overwritten = KEPT.replace("UMOV UR6, URZ ;", "UMOV UR6, URZ ;\n /*7fc8*/ ULDC UR6, c[0x0] ;")
    assert [line.split()[0] for line in lost_zeros(overwritten)] == ["7fd0"]


@pytest.mark.slow
def test_a_plain_rnns_training_step_compiles(cache: Path) -> None:
    once, often = compiled("compiled_rnn", ["90"], cache)
    kernels = {"lstm_forward", "lstm_backward", "gru_gates", "gru_forward", "gru_backward"}
    assert set(once) == kernels | {"gru_reset_backward"}
    # No more for another batch and population.
    assert often == sum(once.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "inputs", "outputs"), [(90, 64, 321), (90, 128, 430), (90, 8, 64), (89, 64, 321)]
)
def test_a_populations_products_compile(
    capability: int, inputs: int, outputs: int, cache: Path
) -> None:
    found, once, often, wrong = compiled("compiled_linear", (capability, inputs, outputs), cache)
    names = ("product", "input_gradient", "parameter_gradient", "add_shares")
    assert set(found) == {f"{name}_kernel" for name in names}
    block = MULTIPROCESSORS[capability].block_shared
    for shared, _, spilled in found.values():
        assert shared <= block
        # Chosen on 9.0, whose products of warp groups need fewer registers.
        assert spilled == 0 or capability != 90
    assert wrong == []
    # No more for another batch, population or layout: a member's sums keep their order.
    assert once == often == len(names)


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "columns"), [(90, 1), (90, 3), (90, 4), (89, 1)])
def test_a_populations_sums_compile(capability: int, columns: int, cache: Path) -> None:
    found, once, often = compiled("compiled_sums", (capability, columns), cache)
    assert set(found) == {"member_shares_kernel", "add_member_shares_kernel"}
    assert [spilled for _, spilled in found.values()] == [0, 0]
    # No more for another batch, population or layout.
    assert once == often == 2


@pytest.mark.slow
@pytest.mark.parametrize("width", [3, 100])
def test_a_populations_embeddings_compile(width: int, cache: Path) -> None:
    found, once, often = compiled("compiled_lookup", ["90", width], cache)
    assert set(found) == {"occurrences_kernel", "add_occurrences_kernel"}
    assert [spilled for _, spilled in found.values()] == [0, 0]
    # No more for another batch, population or vocabulary.
    assert once == often == 2


@pytest.mark.slow
def test_a_populations_update_compiles(cache: Path) -> None:
    found, once, often = compiled("compiled_update", ["90"], cache)
    assert set(found) == {"squares_kernel", "clip_kernel", "rmsprop_kernel"}
    assert [spilled for _, spilled in found.values()] == [0, 0, 0]
    assert once == often == 3


@pytest.mark.slow
@pytest.mark.parametrize(("particles", "columns"), [(30, 1), (20, 4)])
def test_a_filters_losses_compile(particles: int, columns: int, cache: Path) -> None:
    found, once, often = compiled("compiled_loss", ["90", particles, columns], cache)
    assert set(found) == {"loss_kernel", "mean_loss_kernel", "loss_gradient_kernel"}
    assert [spilled for _, spilled in found.values()] == [0, 0, 0]
    assert once == often == 3
