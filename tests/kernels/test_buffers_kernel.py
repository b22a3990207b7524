"""Buffers of the kernels that are made in one piece, or from what the host knows."""

from __future__ import annotations

import pytest
import torch

from pfrnn.kernels.run_forward import Shape, _counts
from pfrnn.kernels.zeroed import zeroed


def test_zeros_of_several_shapes_in_one_piece() -> None:
    shapes = [(2, 3, 4), (1, 129), (5,), (2, 7)]
    made = zeroed(torch.empty(1), shapes)
    assert [tuple(one.shape) for one in made] == shapes
    for number, one in enumerate(made, 1):
        assert one.is_contiguous()
        assert not one.any()
        assert one.storage_offset() * 4 % 512 == 0
        one.fill_(number)
    # None lies in another.
    assert [one.unique().tolist() for one in made] == [[1.0], [2.0], [3.0], [4.0]]


@pytest.mark.parametrize("sequences", [1, 7, 8, 64])
@pytest.mark.parametrize("each", [1, 2, 8])
def test_counts_without_padding_are_those_of_a_mask_of_ones(sequences: int, each: int) -> None:
    shape = Shape(3, 2, sequences, 30, 4)
    count = -(-sequences // each)
    ones = torch.ones(3, 2, sequences, dtype=torch.bool)
    cpu = torch.device("cpu")
    for found, expected in zip(
        _counts(None, shape, count, each, cpu), _counts(ones, shape, count, each, cpu), strict=True
    ):
        assert found.shape == expected.shape
        assert torch.equal(found, expected)
