"""Random numbers of a population's steps: each member's own, whoever shares its block.

Every step's numbers come from a generator seeded with (member's seed, what for, epoch, step), so
nothing about the generators needs to be saved for an exact resume, and a member trained alone
draws the numbers it draws in company. Members with one seed (the search) share one draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.study.seeding import derive_seed
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.members import Member


class NoiseShape(NamedTuple):
    """Size of one member's noise in a step, but for T.

    Attributes:
        sequences: N.
        particles: K.
        hidden: H.
        uniform: whether ancestors are drawn.
        initial: whether the particles start at random.
    """

    sequences: int
    particles: int
    hidden: int
    uniform: bool = True
    initial: bool = False


def step_seed(member: Member, *axes: str | int) -> int:
    """Seed of a member's numbers for a named use, e.g. ``("train", epoch, step)``."""
    return derive_seed(member.seed, *axes)


def draw(
    members: Sequence[Member],
    axes: Sequence[str | int],
    lengths: Sequence[int],
    shape: NoiseShape,
    device: torch.device,
    steps: int | None = None,
) -> Randomness:
    """Draw a step's noise for every member.

    Args:
        members: M of them.
        axes: names the use; part of every seed.
        lengths: time steps of each member's own batch; T is the longest. A member draws its own
            number of steps, so its numbers don't depend on its neighbours' padding.
        shape: N, K, H and what is needed besides the transition noise.
        device: where the numbers are made; a CPU and a GPU make different ones.
        steps: T where the batch is longer than its longest sequence; the numbers there are 0.
    """
    seeds = [step_seed(member, *axes) for member in members]
    # Dict order keeps the first appearance: deterministic.
    keys = dict.fromkeys(zip(seeds, lengths, strict=True))
    unique = {key: place for place, key in enumerate(keys)}
    count, steps = len(unique), steps or max(lengths)
    sizes = (shape.sequences, shape.particles)
    normal = torch.zeros(count, steps, *sizes, shape.hidden, device=device)
    uniform = torch.zeros(count, steps, *sizes, device=device) if shape.uniform else None
    initial = torch.zeros(count, 2, *sizes, shape.hidden, device=device) if shape.initial else None
    generator = torch.Generator(device)
    for (seed, length), place in unique.items():
        generator.manual_seed(seed)
        normal[place, :length].normal_(generator=generator)
        if uniform is not None:
            uniform[place, :length].uniform_(generator=generator)
        if initial is not None:
            initial[place].uniform_(generator=generator)
    return Randomness(
        *(
            None if drawn is None else _spread(drawn, seeds, lengths, unique).transpose(0, 1)
            for drawn in (normal, uniform, initial)
        )
    )


def draw_dropout(
    members: Sequence[Member],
    axes: Sequence[str | int],
    lengths: Sequence[int],
    sizes: Sequence[int],
    rate: float,
    device: torch.device,
    steps: int | None = None,
) -> Tensor:
    """Draw dropout's factors for every member, from another seed than its noise.

    Args:
        members: M of them.
        axes: names the use; part of every seed.
        lengths: steps of each member's own mask.
        sizes: of one step's mask: (N, K, H), or (N, H).
        rate: share of factors that are 0, in [0, 1).
        device: where the numbers are made; a CPU and a GPU make different ones.
        steps: T', the longest length when None; steps beyond a member's own are padding, and 0.

    Returns:
        (T', M, *sizes): see :func:`dropout_factors`.
    """
    seeds = [step_seed(member, *axes, "dropout") for member in members]
    keys = dict.fromkeys(zip(seeds, lengths, strict=True))
    unique = {key: place for place, key in enumerate(keys)}
    uniform = torch.zeros(len(unique), steps or max(lengths), *sizes, device=device)
    generator = torch.Generator(device)
    for (seed, length), place in unique.items():
        generator.manual_seed(seed)
        uniform[place, :length].uniform_(generator=generator)
    return _spread(dropout_factors(uniform, rate), seeds, lengths, unique).transpose(0, 1)


def dropout_factors(uniform: Tensor, rate: float) -> Tensor:
    """Turn uniforms in [0, 1) into factors: 0 with probability ``rate``, else 1 / (1 - rate).

    The factors' mean is 1, so that nothing changes its scale in evaluation, where none are used.

    Example:
        >>> dropout_factors(torch.tensor([0.1, 0.5, 0.9]), 0.5)
        tensor([0., 2., 2.])
    """
    return (uniform >= rate).to(uniform.dtype) / (1.0 - rate)


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
