"""A training step launches no more small kernels than it needs.

For one member they are a tenth of a step's time on a GPU, so that one launch more is a thousandth.
The bounds are what a step took when they were written, and a little: another torch may take an
operation apart. Whoever passes one has added a copy, a fill, or a sum that nobody reads; a new loss
or statistic that needs its operations moves the bound.
"""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs triton, whose launches it counts"
)

# Operations of torch for one member and for several.
BOUNDS = {
    ("benchmark", "pf_lstm"): (10, 12),
    ("benchmark", "pf_gru"): (10, 13),
    ("training", "pf_lstm"): (46, 51),
    ("training", "pf_gru"): (46, 52),
}
LITTLE = 5
KERNELS = {
    "fill_uniform_kernel": 1, "begin_kernel": 1, "in_order_kernel": 1,
    # Of the encoder, whose inputs need no gradient, and of the cell's inputs.
    "product_kernel": 2, "input_gradient_kernel": 1, "parameter_gradient_kernel": 2,
    "add_shares_kernel": 2,
    # Of the update.
    "squares_kernel": 1, "clip_kernel": 1, "rmsprop_kernel": 1,
    # Of both losses.
    "loss_kernel": 1, "mean_loss_kernel": 1, "loss_gradient_kernel": 1,
}  # fmt: skip
OWN = {
    # TF32: float16 factors and their scale, by the gradients of log-weights and of the head.
    "benchmark": {"peak_kernel": 2, "half_scale_kernel": 1},
    # Of the head's bias.
    "training": {"member_shares_kernel": 1},
}


def count(folder, kind, cell, members):
    from .launches import LOOP, benchmark_step, training_step

    if kind == "benchmark":
        operations, kernels = benchmark_step(cell, members)
    else:
        operations, kernels = training_step(folder, cell, members)
    assert all(kernels[name] for name in LOOP)
    return operations, {name: n for name, n in kernels.items() if name not in LOOP}


@pytest.mark.parametrize("members", [1, 12])
@pytest.mark.parametrize(("kind", "cell"), BOUNDS)
def test_a_step_launches_no_more_than_it_did(tmp_path, kind, cell, members):
    operations, kernels = count(tmp_path, kind, cell, members)
    assert kernels == KERNELS | OWN[kind]
    bound = BOUNDS[kind, cell][members > 1]
    assert sum(operations.values()) <= bound + LITTLE, operations


@pytest.mark.parametrize("kind", ["benchmark", "training"])
def test_what_nobody_reads_would_be_seen(tmp_path, monkeypatch, kind):
    """The test can fail: the final cell, pooled statistics and int64 ancestors, left in."""
    from . import launches

    run = launches.run_pf_fused

    def everything(*arguments, **options):
        return run(*arguments, **options | {"extras": True})

    monkeypatch.setattr(launches, "run_pf_fused", everything)
    operations, _ = count(tmp_path, kind, "pf_lstm", 1)
    assert sum(operations.values()) > BOUNDS[kind, "pf_lstm"][0] + LITTLE


def test_a_copy_in_the_step_is_counted(tmp_path):
    import torch

    from .launches import META, counted

    with counted() as (operations, kernels):
        x = torch.empty(3, device=META)
        x.view(3, 1).clone()
        torch.ones(2)  # on the host
    assert dict(operations) == {"clone": 1}
    assert not kernels
