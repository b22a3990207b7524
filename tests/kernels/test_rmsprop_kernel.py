"""The update in kernels against the same in float64, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: pip install triton")

from pfrnn.kernels.rmsprop import Places, clipped, rmsprop

# More than a program's share, less than an alignment, and single numbers.
SIZES = [64 * 33, 33, 1, 700 * 5, 64]
GAP, DECAY, EPSILON, SLACK = 128, 0.99, 1e-8, 1e-6


class Memory:
    """A population's tensors, one after another with gaps: (M, size) each."""

    def __init__(self, members: int, device: str) -> None:
        starts, whole = [], 0
        for size in SIZES:
            starts.append(whole)
            whole += -(-members * size // GAP) * GAP
        self.members, self.device, self.whole, self.starts = members, device, whole, starts
        member = torch.zeros(whole, dtype=torch.int32)
        for start, size in zip(starts, SIZES, strict=True):
            member[start : start + members * size] = torch.arange(members).repeat_interleave(size)
        self.places = Places(
            member.to(device), torch.tensor(starts).to(device), torch.tensor(SIZES).to(device),
            sum(SIZES),
        )  # fmt: skip

    def drawn(self, seed: int, scale: float = 1.0) -> Tensor:
        """Random numbers, zeros in the gaps."""
        out = torch.zeros(self.whole)
        values = torch.randn(self.whole, generator=torch.Generator().manual_seed(seed)) * scale
        for start, size in zip(self.starts, SIZES, strict=True):
            out[start : start + self.members * size] = values[start : start + self.members * size]
        return out.to(self.device)

    def per_element(self, value: Tensor) -> Tensor:
        return value.double()[self.places.member.long()]


def reference(memory, theta, square, g, clip, rate, l2, alive, decays):
    """The plain update in float64: new parameters, squares, norms."""
    member = memory.places.member.long()
    g = g.double()
    norm = torch.zeros(memory.members, dtype=torch.float64, device=g.device)
    norm = norm.index_add(0, member, g * g).sqrt()
    moves = alive & norm.isfinite()
    g = g * memory.per_element((clip.double() / (norm + SLACK)).clamp(max=1.0))
    g = torch.where(decays, g + memory.per_element(l2) * theta.double(), g)
    new_square = DECAY * square.double() + (1 - DECAY) * g * g
    step = g / (new_square.sqrt() + EPSILON) * memory.per_element(rate)
    there = moves[member]
    new = torch.where(there, theta.double() - step, theta.double())
    return new, torch.where(there, new_square, square.double()), norm, moves


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("partly", [False, True])
def test_updates_are_the_references_to_rounding(device, members, partly):
    memory = Memory(members, device)
    numbers = torch.arange(members, dtype=torch.float32, device=device)
    # The first member is clipped at every step, the last never.
    rate, clip, l2 = 1e-3 * (1 + numbers), 0.3 * 50**numbers, 1e-4 * (1 + numbers)
    alive = torch.ones(members, dtype=torch.bool, device=device)
    decays = torch.arange(memory.whole, device=device) % 3 != 0 if partly else None
    theta, square = memory.drawn(1), memory.drawn(2).abs()
    everywhere = torch.ones(memory.whole, dtype=torch.bool, device=device)
    for step in range(3):
        g = memory.drawn(10 + step, 10.0 ** (step - 2))
        expected = reference(
            memory,
            theta,
            square,
            g,
            clip,
            rate,
            l2,
            alive,
            everywhere if decays is None else decays,
        )
        found = clipped(g, memory.places, clip, alive, SLACK)
        rmsprop(theta, square, g, memory.places, found, rate, l2, decays, DECAY, EPSILON)
        torch.testing.assert_close(found.norm.double(), expected[2], rtol=1e-6, atol=0)
        assert torch.equal(found.moves, expected[3])
        torch.testing.assert_close(theta.double(), expected[0], rtol=2e-6, atol=2e-7)
        torch.testing.assert_close(square.double(), expected[1], rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_dead_members_and_those_with_a_broken_gradient_keep_their_values(device, value):
    memory = Memory(3, device)
    ones = torch.ones(3, device=device)
    alive = torch.tensor([True, True, False], device=device)
    theta, square, g = memory.drawn(1), memory.drawn(2).abs(), memory.drawn(3)
    g[memory.starts[3] + SIZES[3] + 5] = value  # of the second member
    before = theta.clone(), square.clone()
    found = clipped(g, memory.places, ones, alive, SLACK)
    assert found.moves.tolist() == [True, False, False]
    rmsprop(theta, square, g, memory.places, found, ones, ones, None, DECAY, EPSILON)
    moved = memory.places.member == 0
    for new, old in zip((theta, square), before, strict=True):
        assert torch.equal(new[~moved], old[~moved])
        assert not torch.equal(new[moved], old[moved])


def test_tensors_with_gaps_are_refused(device):
    memory = Memory(2, device)
    wide = memory.drawn(1).unsqueeze(1).expand(-1, 2)[:, 0]
    alive = torch.ones(2, dtype=torch.bool, device=device)
    with pytest.raises(ValueError, match="gradient: expected a contiguous tensor"):
        clipped(torch.stack([wide, wide], 1)[:, 0], memory.places, alive.float(), alive, SLACK)
