"""Random numbers of a population's steps: each member's own, whoever shares its block.

Every step's numbers come from a generator seeded with (member's seed, what for, epoch, step), so
nothing about the generators needs to be saved for an exact resume, and a member trained alone
draws the numbers it draws in company. Members with one seed (the search) share one draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.study.seeding import derive_seed
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.members import Member


def step_seed(member: Member, *axes: str | int) -> int:
    """Seed of a member's numbers for a named use, e.g. ``("train", epoch, step)``."""
    return derive_seed(member.seed, *axes)


def draw(
    members: Sequence[Member],
    axes: Sequence[str | int],
    lengths: Sequence[int],
    sizes: tuple[int, int, int],
    device: torch.device,
    steps: int | None = None,
    uniform: bool = True,
    initial: bool = False,
) -> Randomness:
    """Draw a step's noise for every member.

    Args:
        members: M of them.
        axes: names the use; part of every seed.
        lengths: time steps of each member's own batch; T is the longest. A member draws its own
            number of steps, so its numbers don't depend on its neighbours' padding.
        sizes: N, K, H of one member and step.
        device: where the numbers are made; a CPU and a GPU make different ones.
        steps: T where the batch is longer than its longest sequence; the numbers there are 0.
        uniform: whether ancestors are drawn.
        initial: whether the particles start at random.
    """
    wanted = [_Wanted(Tensor.normal_, sizes)]
    if uniform:
        wanted.append(_Wanted(Tensor.uniform_, sizes[:2]))
    if initial:
        wanted.append(_Wanted(Tensor.uniform_, sizes, steps=2))
    drawn = _draw_each(members, axes, lengths, wanted, device, steps)
    start = drawn.pop() if initial else None
    return Randomness(drawn[0], drawn[1] if uniform else None, start)


def draw_dropout(
    members: Sequence[Member],
    axes: Sequence[str | int],
    lengths: Sequence[int],
    sizes: tuple[int, ...],
    device: torch.device,
    steps: int | None = None,
) -> Tensor:
    """Draw dropout's uniforms for every member, from another seed than its noise.

    Args:
        members: M of them.
        axes: names the use; part of every seed.
        lengths: steps of each member's own mask.
        sizes: of one step's mask: (N, K, H), or (N, H).
        device: where the numbers are made; a CPU and a GPU make different ones.
        steps: T', the longest length when None; steps beyond a member's own are padding, and 0.

    Returns:
        (T', M, *sizes) in [0, 1), for :func:`dropout_factors`.
    """
    wanted = [_Wanted(Tensor.uniform_, sizes)]
    return _draw_each(members, (*axes, "dropout"), lengths, wanted, device, steps)[0]


def dropout_factors(uniform: Tensor, rate: Tensor) -> Tensor:
    """Turn uniforms in [0, 1) into factors: 0 with probability ``rate``, else 1 / (1 - rate).

    The factors' mean is 1, so that nothing changes its scale in evaluation, where none are used.

    Args:
        uniform: (T', M, ...).
        rate: (M,) float64, each in [0, 1).

    Example:
        >>> dropout_factors(torch.tensor([[0.1, 0.9]]), torch.tensor([0.5, 0.75]))
        tensor([[0., 4.]])
    """
    wide = rate.view(-1, *([1] * (uniform.dim() - 2)))
    kept, dropped = (1.0 - wide).to(uniform.dtype), wide.to(uniform.dtype)
    return (uniform >= dropped).to(uniform.dtype) / kept


class _Wanted(NamedTuple):
    """Numbers of one step of one member: how they are drawn, their sizes, a fixed number of steps.

    Without the latter a member draws its own length.
    """

    fill: Callable[..., Tensor]
    sizes: tuple[int, ...]
    steps: int | None = None


def _draw_each(
    members: Sequence[Member],
    axes: Sequence[str | int],
    lengths: Sequence[int],
    wanted: Sequence[_Wanted],
    device: torch.device,
    steps: int | None,
) -> list[Tensor]:
    """Draw once for each distinct seed and length, and give every member its draw: (T, M, ...)."""
    keys = [(step_seed(m, *axes), length) for m, length in zip(members, lengths, strict=True)]
    # Dict order keeps the first appearance: deterministic.
    unique = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    longest = steps or max(lengths)
    drawn = [
        torch.zeros(len(unique), one.steps or longest, *one.sizes, device=device) for one in wanted
    ]
    generator = torch.Generator(device)
    for (seed, length), place in unique.items():
        generator.manual_seed(seed)
        for one, numbers in zip(wanted, drawn, strict=True):
            one.fill(numbers[place, : one.steps or length], generator=generator)
    places = [unique[key] for key in keys]
    return [_spread(numbers, places).transpose(0, 1) for numbers in drawn]


def _spread(drawn: Tensor, places: Sequence[int]) -> Tensor:
    """Give every member its draw: (unique, ...) -> (M, ...), without a copy where possible."""
    if len(drawn) == len(places):
        return drawn
    if len(drawn) == 1:
        return drawn.expand(len(places), *drawn.shape[1:])
    return drawn[torch.tensor(places, device=drawn.device)]
