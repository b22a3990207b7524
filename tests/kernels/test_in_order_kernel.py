"""Sums of parts from left to right, bit for bit those of a loop of additions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pfrnn.kernels.in_order import in_order


def one_by_one(parts: Tensor) -> Tensor:
    total = parts[:, 0]
    for place in range(1, parts.shape[1]):
        total = total + parts[:, place]
    return total


def half_by_half(parts: Tensor) -> Tensor:
    """Over the axis before the last."""
    while parts.shape[-2] > 1:
        half = parts.shape[-2] // 2
        parts = parts[..., :half, :] + parts[..., half:, :]
    return parts.squeeze(-2)


def parts_of(shape: tuple[int, ...], device: str) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    parts = torch.randn(*shape, generator=generator)
    parts = parts * 10.0 ** torch.randint(-6, 7, shape, generator=generator)
    # Minus zero stays what it is.
    parts[0, ..., 0] = -0.0
    return parts.to(device)


def same_bits(found: Tensor, expected: Tensor) -> bool:
    assert found.shape == expected.shape
    first, second = (x.contiguous().view(torch.int32) for x in (found, expected))
    return torch.equal(first, second)


@pytest.mark.parametrize("gru", [False, True], ids=["lstm", "gru"])
@pytest.mark.parametrize(
    ("members", "shares", "programs", "units", "padded", "outputs"),
    [(1, 8, 64, 16, 16, 1), (3, 9, 17, 13, 16, 0), (2, 1, 1, 5, 16, 4), (1, 2, 18, 20, 32, 2)],
)
def test_the_bits_of_additions_one_by_one(
    device: str, gru: bool, members: int, shares: int, programs: int, units: int, padded: int,
    outputs: int,
) -> None:  # fmt: skip
    weights = parts_of((members, shares, 4 if gru else 5, units, units), device)
    observation = parts_of((members, programs, padded), device)
    readout = parts_of((members, programs, outputs, 8, padded), device)
    recurrent, candidate, obs, head = in_order(weights, observation, readout, gru)
    blocks = one_by_one(weights)
    if gru:
        assert candidate is not None
        assert same_bits(candidate, blocks[:, 2])
        blocks = torch.cat([blocks[:, :2], blocks[:, 3:]], 1)
    else:
        assert candidate is None
    assert same_bits(recurrent, blocks.transpose(1, 2).flatten(2))
    assert recurrent.is_contiguous()
    assert same_bits(obs, one_by_one(observation)[:, :units])
    assert (head is None) == (outputs == 0)
    if head is not None:
        expected = one_by_one(half_by_half(readout))[..., :units]
        assert same_bits(head, expected.transpose(1, 2))
    if programs > 8:
        # The order tells: from right to left the bits are others.
        assert not same_bits(obs, one_by_one(observation.flip(1))[:, :units])
