"""The equations as one would first write them: the yardstick of the layer benchmark.

A module around ``torch.nn.Linear`` on [h, x], ``torch.nn.BatchNorm1d`` on the candidate,
``torch.multinomial`` and an expanded ``gather``, in a loop over time. It computes what the
fidelity ``paper`` computes, and nothing of it is tuned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class PlainPFLSTM(nn.Module):
    """PF-LSTM in a plain loop.

    Args:
        input_size: features of x.
        hidden_size: H.
        num_particles: K.
        alpha: mixture of soft resampling.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_particles: int, alpha: float = 0.5
    ) -> None:
        super().__init__()
        self.hidden_size, self.num_particles, self.alpha = hidden_size, num_particles, alpha
        both = input_size + hidden_size
        self.gates = nn.Linear(both, 5 * hidden_size)
        self.f_obs = nn.Linear(both, 1)
        self.norm = nn.BatchNorm1d(hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean particle of every step: (T, N, D) -> (T, N, H)."""
        return torch.stack([(p.exp().unsqueeze(-1) * h).sum(1) for h, p in self.beliefs(x)])

    def beliefs(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each step's particles (N, K, H) and log-weights (N, K)."""
        steps, sequences, _ = x.shape
        count, size = self.num_particles, self.hidden_size
        h = x.new_zeros(sequences, count, size)
        c = torch.zeros_like(h)
        p = x.new_full((sequences, count), -math.log(count))
        for t in range(steps):
            wide = x[t].unsqueeze(1).expand(-1, count, -1)
            blocks = self.gates(torch.cat([h, wide], -1))
            i, f, o, n, s = blocks.chunk(5, -1)
            n = n + torch.randn_like(s) * s
            n = torch.relu(self.norm(n.reshape(-1, size)).view(sequences, count, size))
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * n
            h = torch.sigmoid(o) * torch.tanh(c)
            p = p + self.f_obs(torch.cat([h, wide], -1)).squeeze(-1)
            p = torch.log_softmax(p, -1)
            h, c, p = self.resample(h, c, p)
            yield h, p

    def resample(self, h: Tensor, c: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Resample softly."""
        count = self.num_particles
        q = self.alpha * p.exp() + (1 - self.alpha) / count
        a = torch.multinomial(q, count, replacement=True)
        wide = a.unsqueeze(-1).expand(-1, -1, self.hidden_size)
        p = (p - q.log()).gather(1, a)
        return h.gather(1, wide), c.gather(1, wide), torch.log_softmax(p, -1)


class PlainPFGRU(PlainPFLSTM):
    """PF-GRU in a plain loop; arguments as :class:`PlainPFLSTM`."""

    def __init__(
        self, input_size: int, hidden_size: int, num_particles: int, alpha: float = 0.5
    ) -> None:
        super().__init__(input_size, hidden_size, num_particles, alpha)
        both = input_size + hidden_size
        self.gates = nn.Linear(both, 3 * hidden_size)
        self.candidate = nn.Linear(both, hidden_size)

    def beliefs(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each step's particles (N, K, H) and log-weights (N, K)."""
        steps, sequences, _ = x.shape
        count, size = self.num_particles, self.hidden_size
        h = x.new_zeros(sequences, count, size)
        p = x.new_full((sequences, count), -math.log(count))
        for t in range(steps):
            wide = x[t].unsqueeze(1).expand(-1, count, -1)
            z, r, s = self.gates(torch.cat([h, wide], -1)).chunk(3, -1)
            z, r = torch.sigmoid(z), torch.sigmoid(r)
            n = self.candidate(torch.cat([r * h, wide], -1)) + torch.randn_like(s) * s
            n = torch.relu(self.norm(n.reshape(-1, size)).view(sequences, count, size))
            h = (1 - z) * n + z * h
            p = p + self.f_obs(torch.cat([h, wide], -1)).squeeze(-1)
            p = torch.log_softmax(p, -1)
            h, _, p = self.resample(h, h, p)
            yield h, p
