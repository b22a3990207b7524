"""RMSprop for a population: every member its own learning rate, clip and L2 weight.

The update is ``torch.optim.RMSprop`` after ``torch.nn.utils.clip_grad_norm_``, written on stacked
tensors (M, ...): the norm is each member's own, over all its tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Stacked = dict[str, Tensor]

# As in torch.nn.utils.clip_grad_norm_.
_CLIP_EPSILON = 1e-6


class Hyper(NamedTuple):
    """Per-member settings, each (M,)."""

    learning_rate: Tensor
    clip: Tensor
    l2: Tensor

    def take(self, positions: Tensor) -> Hyper:
        """Keep the members at ``positions``."""
        return Hyper(*(value[positions] for value in self))


class Update(NamedTuple):
    """Result of one update.

    Attributes:
        parameters: new values.
        square_average: new running means of squared gradients.
        gradient_norm: (M,), before clipping.
    """

    parameters: Stacked
    square_average: Stacked
    gradient_norm: Tensor


def _per_member(value: Tensor, like: Tensor) -> Tensor:
    return value.reshape(-1, *([1] * (like.dim() - 1)))


def gradient_norm(gradients: Stacked) -> Tensor:
    """Global norm of each member's gradient: (M,)."""
    squares = [gradient.square().flatten(1).sum(1) for gradient in gradients.values()]
    return torch.stack(squares).sum(0).sqrt()


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
    r"""One RMSprop step of every member.

    .. math::
        g &\leftarrow g \min(1, c / (\|g\| + 10^{-6})) + \lambda\theta \\
        v &\leftarrow \rho v + (1-\rho) g^2, \quad
        \theta \leftarrow \theta - \eta\, g / (\sqrt v + \epsilon)

    New tensors are returned and the old ones left alone, so a step that runs out of memory can be
    repeated.

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
    factor = (hyper.clip / (norm + _CLIP_EPSILON)).clamp(max=1.0)
    moves = alive & torch.isfinite(norm)
    new_parameters: Stacked = {}
    new_squares: Stacked = {}
    for name, value in parameters.items():
        moving = _per_member(moves, value)
        gradient = gradients[name] * _per_member(factor, value)
        if decays(name):
            gradient = gradient + _per_member(hyper.l2, value) * value
        square = square_average[name] * decay + gradient.square() * (1 - decay)
        step = gradient / (square.sqrt() + epsilon)
        moved = value - _per_member(hyper.learning_rate, value) * step
        new_parameters[name] = torch.where(moving, moved, value)
        new_squares[name] = torch.where(moving, square, square_average[name])
    return Update(new_parameters, new_squares, norm)
