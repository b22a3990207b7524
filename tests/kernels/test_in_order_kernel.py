"""Sums of parts from left to right, bit for bit those of a loop of additions."""

from __future__ import annotations

import pytest
import torch

from pfrnn.kernels.in_order import in_order


def one_by_one(parts: torch.Tensor) -> torch.Tensor:
    total = parts[:, 0]
    for place in range(1, parts.shape[1]):
        total = total + parts[:, place]
    return total


@pytest.mark.parametrize(
    "shape", [(1, 64, 16), (3, 8, 5, 16, 16), (2, 1, 7), (2, 9, 1025), (1, 2, 1)]
)
def test_the_bits_of_additions_one_by_one(device: str, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    parts = torch.randn(*shape, generator=generator)
    parts = parts * 10.0 ** torch.randint(-6, 7, shape, generator=generator)
    # Minus zero stays what it is.
    parts[0, ..., 0] = -0.0
    parts = parts.to(device)
    expected = one_by_one(parts)
    found = in_order(parts)
    assert found.shape == expected.shape
    assert torch.equal(
        found.contiguous().view(torch.int32), expected.contiguous().view(torch.int32)
    )
    if shape[1] > 8:
        # The order tells: from right to left the bits are others.
        assert not torch.equal(found, one_by_one(parts.flip(1)))
