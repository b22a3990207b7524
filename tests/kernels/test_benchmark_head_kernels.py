"""The benchmark's step with its head inside the kernels and outside: one loss, one gradient."""

from __future__ import annotations

import functools

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from bench.step_models import Size, filter_loss, weights_of
from pfrnn.kernels.noise import noise_key
from pfrnn.kernels.sequence import run_pf_fused


@pytest.mark.parametrize("cell", ["pf_lstm", "pf_gru"])
def test_both_heads_give_one_step(device, cell):
    torch.manual_seed(0)
    members, steps, batch = 2, 2, 3
    size = Size(cell, members, steps, batch, 4, 16, "ieee", 3, 8)
    parameters = {k: v.requires_grad_() for k, v in weights_of(size, members, device).items()}
    x = torch.randn(steps, members, batch, 3, device=device)
    y = torch.randn(members, steps, batch, device=device)
    key = noise_key([1, 2], 1, device)
    run = functools.partial(run_pf_fused, precision=size.precision)
    found = []
    for head in ("fused", "product"):
        loss = filter_loss(size._replace(head=head), parameters, x, y, run, key, key)
        found.append([loss, *torch.autograd.grad(loss.sum(), list(parameters.values()))])
    for inside, outside in zip(*found, strict=True):
        torch.testing.assert_close(inside, outside, rtol=1e-4, atol=1e-5)
