"""The running batch-norm statistics: a count that the host knows has the bits of a tensor of it."""

from __future__ import annotations

import pytest
import torch

from pfrnn.functional import Known, Statistics, update_running


@pytest.mark.parametrize("number", [0, 1, 2, 3, 7, 1920, 2304, 99_999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("known", [0.1, None], ids=["number", "tensor"])
def test_a_known_count(number, dtype, known):
    g = torch.Generator().manual_seed(number)
    old = (torch.randn(2, 9, 16, generator=g, dtype=dtype), torch.rand(2, 9, 16, dtype=dtype))
    mean = torch.randn(2, 9, 16, generator=g, dtype=dtype)
    variance = torch.rand(2, 9, 16, generator=g, dtype=dtype)
    momentum = torch.tensor(1 / 3, dtype=dtype) if known is None else known
    count = torch.full((2, 9), float(number), dtype=dtype)
    expected = update_running(old, Statistics(mean, variance, count), momentum)
    found = update_running(old, Known(mean, variance, float(number)), momentum)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(found[0], old[0]) == (number == 0)
    assert torch.equal(found[1], old[1]) == (number <= 1)
