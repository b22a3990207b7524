"""RMSprop for a population: every member its own learning rate, clip and L2 weight.

The update is ``torch.optim.RMSprop`` after ``torch.nn.utils.clip_grad_norm_``, written on stacked
tensors (M, ...): the norm is each member's own, over all its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Stacked = dict[str, Tensor]

# As in torch.nn.utils.clip_grad_norm_.
CLIP_EPSILON = 1e-6


class Hyper(NamedTuple):
    """Per-member settings, each (M,)."""

    learning_rate: Tensor
    clip: Tensor
    l2: Tensor


class Update(NamedTuple):
    """One update, computed and not yet written.

    Attributes:
        gradient_norm: (M,), before clipping.
        moves: bool (M,): alive, and the gradient's norm is finite.
        write: writes the new parameters and running means of members that move, in place; asks
            for no memory.
    """

    gradient_norm: Tensor
    moves: Tensor
    write: Callable[[], None]


def gradient_norm(gradients: Stacked) -> Tensor:
    """Global norm of each member's gradient: (M,)."""
    norms = [
        torch.linalg.vector_norm(gradient, dim=list(range(1, gradient.dim())))
        for gradient in gradients.values()
    ]
    return torch.linalg.vector_norm(torch.stack(norms), dim=0)


def rmsprop(
    parameters: Stacked,
    gradients: Stacked,
    square_average: Stacked,
    hyper: Hyper,
    decay: float,
    epsilon: float,
    alive: Tensor,
    decays: Callable[[str], bool] = lambda name: True,
) -> Update:
    r"""Compute one RMSprop step of every member.

    .. math::
        g &\leftarrow g \min(1, c / (\|g\| + 10^{-6})) + \lambda\theta \\
        v &\leftarrow \rho v + (1-\rho) g^2, \quad
        \theta \leftarrow \theta - \eta\, g / (\sqrt v + \epsilon)

    Args:
        parameters: name -> (M, ...).
        gradients: name -> (M, ...).
        square_average: v, name -> (M, ...).
        hyper: learning rate, clip and L2 weight of each member.
        decay: rho in (0, 1).
        epsilon: added to the root.
        alive: bool (M,); a member that is not alive, or whose gradient is not finite, keeps its
            values.
        decays: whether L2 acts on a parameter, by its name.
    """
    norm = gradient_norm(gradients)
    factor = (hyper.clip / (norm + CLIP_EPSILON)).clamp(max=1.0)
    # A norm is no less than zero, or no number: one comparison tells whether it is finite.
    moves = alive & (norm < math.inf)
    names = list(parameters)
    values = [parameters[name] for name in names]
    before = [square_average[name] for name in names]

    def wide(member: Tensor) -> list[Tensor]:
        return [member.reshape(-1, *([1] * (value.dim() - 1))) for value in values]

    # Fused list operations: at small sizes the number of calls is what an update costs.
    clipped = list(torch._foreach_mul([gradients[name] for name in names], wide(factor)))
    for place, (name, l2) in enumerate(zip(names, wide(hyper.l2), strict=True)):
        if decays(name):
            clipped[place] = torch.addcmul(clipped[place], l2, values[place])
    squares = torch._foreach_mul(before, decay)
    torch._foreach_addcmul_(squares, clipped, clipped, 1 - decay)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, epsilon)
    steps = torch._foreach_div(clipped, roots)
    torch._foreach_mul_(steps, wide(hyper.learning_rate))
    moved = torch._foreach_sub(values, steps)

    def write() -> None:
        masks = wide(moves)
        for olds, news in ((values, moved), (before, squares)):
            for mask, new, old in zip(masks, news, olds, strict=True):
                torch.where(mask, new, old, out=old)

    return Update(norm, moves, write)
