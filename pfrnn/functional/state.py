"""The weighted particles that a filter carries: its belief."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pfrnn.functional.belief import mean_particle, quantiles
from pfrnn.functional.weights import effective_sample_size, normalize


class PFState(NamedTuple):
    """The weighted particles after a step, a tuple of tensors that answers questions of a belief.

    ``state.detach()`` forgets the history, as one detaches torch.nn.LSTM's pair. A state can be
    saved and loaded (``torch.load(..., weights_only=True)``), collated by a DataLoader and passed
    to a layer as ``hx``, also as ``tuple(state)``. ``state[-1]`` is the log-weights, not the last
    layer.

    Attributes:
        hidden: (..., N, K, H); a layer's state has its layers in front, (num_layers, N, K, H).
        cell: (..., N, K, H); None for PF-GRU.
        log_weights: (..., N, K), normalised over K.

    Example:
        >>> log_weights = torch.tensor([[0.25, 0.75]]).log()
        >>> belief = PFState(torch.tensor([[[0.0], [4.0]]]), None, log_weights)
        >>> belief.quantile(0.5), belief.ess()
        (tensor([[4.]]), tensor([1.6000]))
    """

    hidden: Tensor
    cell: Tensor | None
    log_weights: Tensor

    def detach(self) -> PFState:
        """Return the state without its history: gradients don't go further back."""
        cell = None if self.cell is None else self.cell.detach()
        return PFState(self.hidden.detach(), cell, self.log_weights.detach())

    def mean(self) -> Tensor:
        """Return the weighted mean of the hidden states, (..., N, H): what a layer outputs."""
        return mean_particle(self.hidden, self.log_weights)

    def quantile(self, level: float | Tensor) -> Tensor:
        """Return weighted quantiles of each hidden unit: the smallest value with CDF >= level.

        Args:
            level: in (0, 1], a number or a tensor (Q,).

        Returns:
            (..., N, H), with Q in front for a tensor, as torch.quantile does.
        """
        units = self.hidden.transpose(-2, -1)
        weights = self.log_weights.unsqueeze(-2).expand(units.shape)
        levels = torch.as_tensor(level, device=units.device)
        found = quantiles(units, weights, levels.reshape(-1)).movedim(-1, 0)
        return found if levels.dim() else found[0]

    def sample(self, count: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw hidden states by their weights, with replacement.

        Args:
            count: draws for each sequence, at least 1.
            generator: torch's default one when None.

        Returns:
            (..., N, count, H).
        """
        weights = normalize(self.log_weights.detach()).exp()
        drawn = torch.multinomial(
            weights.reshape(-1, weights.shape[-1]), count, True, generator=generator
        )
        index = drawn.view(*weights.shape[:-1], count, 1)
        return self.hidden.gather(-2, index.expand(*index.shape[:-1], self.hidden.shape[-1]))

    def ess(self) -> Tensor:
        """Return the effective sample size, (..., N), in [1, K]."""
        return effective_sample_size(self.log_weights)
