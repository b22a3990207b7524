"""The powers of two that gradients are scaled by before they are kept as float16."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.kernels.half_scale import half_scale


def by_torch(*incoming: Tensor) -> Tensor:
    """The same from torch's operations, in float64."""
    peak = torch.stack([x.double().abs().amax((0, *range(2, x.dim()))) for x in incoming]).amax(0)
    exponent = torch.where(peak.isfinite() & (peak > 0), 4 - torch.frexp(peak).exponent, 0)
    return torch.ldexp(torch.ones_like(peak), exponent.clamp(-126, 126)).float()


def test_a_members_scale_goes_by_its_largest_incoming_gradient(device):
    read = torch.zeros(2, 6, 3)
    read[1, 0, 2], read[0, 1, 0], read[0, 3, 1], read[0, 4, 1] = -1.0, 1e-20, 1e38, float("nan")
    read[1, 5, 0] = -float("inf")
    cell = torch.zeros(1, 6, 4)
    cell[0, 0, 1] = 6.0
    found, inverse = half_scale(None, None, cell.to(device), read.to(device))
    largest = torch.tensor([6.0, 1e-20, 0.0, 1e38, 0.0, 0.0], device=device)
    scaled = largest * found
    assert scaled[2] == 0
    assert ((scaled[[0, 1, 3]] >= 8) & (scaled[[0, 1, 3]] < 16)).all()
    assert found[2] == found[4] == found[5] == 1  # nothing came in, or no number
    assert torch.equal(torch.frexp(found).mantissa.cpu(), torch.full((6,), 0.5))
    assert torch.equal(found * inverse, torch.ones_like(found))
    alone, _ = half_scale(None, read[:, :1].to(device), cell[:, :1].to(device), None)
    assert torch.equal(alone, found[:1])


@pytest.mark.parametrize("size", [1.0, 2.0**-126, 1e-45, 2.0**127, 7.999999, 8.0, 16.0])
def test_every_size_of_number(device, size):
    x = torch.tensor([[[0.0, size], [-size, 0.0], [size / 3, -size / 5]]], device=device)
    found, _ = half_scale(x)
    assert torch.equal(found, by_torch(x))


@pytest.mark.parametrize("members", [1, 3, 700])
def test_many_values_in_any_order_of_memory(device, members):
    generator = torch.Generator().manual_seed(members)
    first = torch.randn(3, members, 5, 7, 4, generator=generator) * 1e-3
    second = torch.randn(members, 3, 300, generator=generator).transpose(0, 1)
    second = second * torch.logspace(-30, 30, members).view(1, -1, 1)
    # The largest value of the last member is its very last.
    second[-1, -1, -1] = -1e35
    found, _ = half_scale(first.to(device), second.to(device))
    assert torch.equal(found.cpu(), by_torch(first, second))
    if members == 1:
        wide = torch.zeros(2, 1, 40_000, device=device)
        wide[1, 0, 39_999] = 3.0
        assert half_scale(wide)[0].item() == 4.0


def test_without_a_gradient():
    with pytest.raises(ValueError, match="expected a gradient"):
        half_scale(None, None)
