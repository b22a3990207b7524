"""Buffers of the kernels that are made in one piece, or from what the host knows."""

from __future__ import annotations

import pytest
import torch

from pfrnn.kernels.begin import Begun, begin
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
def test_a_run_begins_as_copies_would_leave_it(device: str, sequences: int, each: int) -> None:
    """Counts without padding are those of a mask of ones; the rest are copies."""
    steps, members, particles, units = 3, 2, 5, 7
    shape = Shape(steps, members, sequences, particles, units)
    programs = -(-sequences // each)
    tile = (members, sequences, particles, units)
    hidden, cell = torch.randn(*tile, device=device), torch.randn(1, device=device).expand(tile)
    log_weights = torch.randn(tile[:-1], device=device)
    for gates in (5, 4):
        wide, candidate = torch.randn(members, units, 5 * units, device=device), None
        blocks = wide.view(members, units, 5, units).transpose(1, 2)
        if gates == 4:
            wide = torch.randn(members, units, 3 * units, device=device)
            candidate = torch.randn(members, units, units, device=device)
            parts = wide.view(members, units, 3, units).transpose(1, 2)
            blocks = torch.cat([parts[:, :2], candidate[:, None], parts[:, 2:]], 1)
        counts = _counts(None, shape, programs, each, torch.device(device))
        # NaN where nobody may write.
        to = Begun(
            *(torch.full((members, steps + 1, *tile[1:]), torch.nan, device=device) for _ in "hc"),
            torch.full((members, steps + 1, *tile[1:-1]), torch.nan, device=device),
            torch.full((members, steps + 1, *tile[1:-1]), -1, dtype=torch.int32, device=device),
            *(torch.full((members, gates, units, units), torch.nan, device=device) for _ in "wt"),
            *counts,
        )
        start = (hidden, cell if candidate is None else None, log_weights)
        begin(start, wide, candidate, to, programs, each)
        assert torch.equal(to.hidden[:, 0], hidden)
        assert torch.equal(to.log_weights[:, 0], log_weights)
        if candidate is None:
            assert torch.equal(to.cell[:, 0], cell)
        identity = torch.arange(particles, dtype=torch.int32, device=device)
        assert torch.equal(to.ancestors[:, 0], identity.expand(tile[:-1]))
        for rest in (to.hidden, to.cell, to.log_weights):
            assert rest[:, 1:].isnan().all()
        assert (to.ancestors[:, 1:] == -1).all()
        assert torch.equal(to.weights, blocks)
        assert torch.equal(to.turned, blocks.transpose(-1, -2))
        ones = torch.ones(steps, members, sequences, dtype=torch.bool, device=device)
        expected = _counts(ones, shape, programs, each, torch.device(device))
        for found, wanted in zip(counts, expected, strict=True):
            assert found.shape == wanted.shape
            assert torch.equal(found, wanted)


def test_a_start_of_another_shape_is_refused(device: str) -> None:
    """A copy would broadcast or raise; a kernel would read what isn't there."""
    new = torch.zeros
    to = Begun(
        new(2, 2, 3, 4, 5), new(2, 2, 3, 4, 5), new(2, 2, 3, 4), new(2, 2, 3, 4),
        new(2, 5, 5, 5), new(2, 5, 5, 5), None, None,
    )  # fmt: skip
    start = (new(2, 2, 4, 5), None, new(2, 3, 4))
    with pytest.raises(RuntimeError, match="expanded size"):
        begin(start, new(2, 5, 25), None, to, 1, 3)
