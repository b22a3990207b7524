"""Random numbers of a population's filter: each member's own, whoever shares its block.

Every step's numbers come from a generator seeded with (member's seed, what for, epoch, step), so
nothing about the generators needs to be saved for an exact resume, and a member trained alone
draws the numbers it draws in company. Members with one seed (the search) share one draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.seeding import derive_seed
from pfrnn.training.members import Member


class Noise(NamedTuple):
    """Random numbers of one step.

    Attributes:
        normal: (T, M, N, K, H) standard normal; transition noise.
        uniform: (T, M, N, K) in [0, 1); ancestor draws.
    """

    normal: Tensor
    uniform: Tensor


class NoiseShape(NamedTuple):
    """Size of one member's and step's noise, T apart."""

    sequences: int
    particles: int
    hidden: int


def step_seed(member: Member, *axes: str | int) -> int:
    """Seed of a member's numbers for a named use, e.g. ``("train", epoch, step)``."""
    return derive_seed(member.seed, *axes)


def draw(
    members: Sequence[Member],
    axes: Sequence[str | int],
    lengths: Sequence[int],
    shape: NoiseShape,
    device: torch.device,
) -> Noise:
    """Draw a step's noise for every member.

    Args:
        members: M of them.
        axes: names the use; part of every seed.
        lengths: time steps of each member's own batch; T is the longest. A member draws its own
            number of steps, so its numbers don't depend on its neighbours' padding.
        shape: N, K, H.
        device: where the numbers are made; a CPU and a GPU make different ones.
    """
    seeds = [step_seed(member, *axes) for member in members]
    # Dict order keeps the first appearance: deterministic.
    unique = {
        key: place for place, key in enumerate(dict.fromkeys(zip(seeds, lengths, strict=True)))
    }
    steps = max(lengths)
    sequences, particles, hidden = shape
    normal = torch.zeros(len(unique), steps, sequences, particles, hidden, device=device)
    uniform = torch.zeros(len(unique), steps, sequences, particles, device=device)
    generator = torch.Generator(device)
    for (seed, length), place in unique.items():
        generator.manual_seed(seed)
        normal[place, :length].normal_(generator=generator)
        uniform[place, :length].uniform_(generator=generator)
    normal, uniform = (_spread(t, seeds, lengths, unique) for t in (normal, uniform))
    return Noise(normal.transpose(0, 1), uniform.transpose(0, 1))


def _spread(
    drawn: Tensor,
    seeds: Sequence[int],
    lengths: Sequence[int],
    unique: dict[tuple[int, int], int],
) -> Tensor:
    """Give every member its draw: (unique, ...) -> (M, ...), without a copy where possible."""
    if len(unique) == len(seeds):
        return drawn
    if len(unique) == 1:
        return drawn.expand(len(seeds), *drawn.shape[1:])
    places = [unique[key] for key in zip(seeds, lengths, strict=True)]
    return drawn[torch.tensor(places, device=drawn.device)]
