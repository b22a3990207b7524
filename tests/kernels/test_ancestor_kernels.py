"""The ancestor draw alone."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

import triton
import triton.language as tl

from pfrnn.functional.resampling import ancestors_of
from pfrnn.kernels.tiles import draw


@triton.jit
def _draw(q_, u_, out_, K: tl.constexpr, KP: tl.constexpr, S: tl.constexpr):
    s = tl.arange(0, S)
    k = tl.arange(0, KP)
    at = s[:, None] * K + k[None, :]
    mask = (k < K)[None, :] & (s >= 0)[:, None]
    q = tl.load(q_ + at, mask=mask, other=0.0)
    tl.store(out_ + at, draw(q, tl.load(u_ + at, mask=mask, other=0.0), K, KP), mask=mask)


def drawn(q: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    out = torch.full(q.shape, -7, dtype=torch.int32, device=q.device)
    rows, particles = q.shape
    _draw[(1,)](q, u, out, K=particles, KP=triton.next_power_of_2(particles), S=rows)
    return out.long()


@pytest.mark.parametrize("particles", [1, 7, 30, 64])
def test_differs_only_where_the_uniform_is_at_a_cumulative_weight(device, particles):
    generator = torch.Generator().manual_seed(particles)
    q = torch.rand(64, particles, generator=generator).softmax(-1)
    u = torch.rand(64, particles, generator=generator)
    got = drawn(q.to(device), u.to(device)).cpu()
    exact = ancestors_of(q.double(), u.double())
    cumulative = q.double().cumsum(-1)
    gap = (u.double().unsqueeze(-1) - cumulative.unsqueeze(-2)).abs().amin(-1)
    assert ((got == exact) | (gap < 1e-6)).all()
    assert (got == exact).float().mean() > 0.99


def test_never_a_particle_of_weight_zero(device):
    q = torch.tensor([[0.0, 0.5, 0.5, 0.0], [0.25, 0.0, 0.75, 0.0]], device=device)
    edge = 1.0 - 2.0**-24
    u = torch.tensor([[0.0, 0.49, 0.51, edge], [0.0, 0.25, 0.3, edge]], device=device)
    assert drawn(q, u).tolist() == [[1, 1, 2, 2], [0, 2, 2, 2]]


def test_a_rounded_sum_below_one_falls_on_the_last_particle(device):
    q = torch.full((2, 30), 0.0333333, device=device)
    u = torch.full((2, 30), 1.0 - 2.0**-24, device=device)
    assert (drawn(q, u) == 29).all()
