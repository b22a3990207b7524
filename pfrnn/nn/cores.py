"""Recurrent cores of the experiment networks: plain and particle, one interface.

A core maps encoded inputs (T, ..., N, E) to beliefs. Batch norm keeps running statistics of
every time step (Cooijmans et al. 2017): the first steps of a filter that starts at zero have
another spread than the later ones, and statistics pooled over time fit neither.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pfrnn.functional.batch_norm import Statistics
from pfrnn.functional.belief import mean_particle
from pfrnn.functional.linear import affine
from pfrnn.functional.pf_gru import PFGRUWeights, pf_gru_step
from pfrnn.functional.pf_lstm import PFLSTMWeights, pf_lstm_step
from pfrnn.functional.rnn import GRUWeights, LSTMWeights, gru_step, lstm_step, run_rnn
from pfrnn.functional.sequence import run_pf
from pfrnn.functional.types import FilterSwitches, PFState, RNNState, RNNSwitches
from pfrnn.functional.weights import uniform_log_weights


class Randomness(NamedTuple):
    """Noise (T, ..., N, K, H) and uniforms (T, ..., N, K) of a filter."""

    normal: Tensor
    uniform: Tensor


class CoreOutput(NamedTuple):
    """What a core gives to the head; T' is 1 when only the last valid step is asked for.

    Attributes:
        belief: (T', ..., N, H), hidden state or mean particle.
        particles: (T', ..., N, K, H) or None.
        log_weights: (T', ..., N, K) or None.
        ess: (T, ..., N) or None.
        ancestors: (T, ..., N, K) or None.
        statistics: batch-norm statistics of each step, (T, ..., H), or None.
    """

    belief: Tensor
    particles: Tensor | None = None
    log_weights: Tensor | None = None
    ess: Tensor | None = None
    ancestors: Tensor | None = None
    statistics: Statistics | None = None


class Core(nn.Module):
    """What both kinds of cores share: input weights, batch-norm parameters and buffers."""

    running_mean: Tensor
    running_variance: Tensor

    def __init__(
        self, inputs: int, hidden: int, blocks: int, norm: bool, max_length: int, bptt: int
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.bptt = bptt
        bound = 1.0 / math.sqrt(hidden)
        self.input_weight = nn.Parameter(torch.empty(inputs, blocks).uniform_(-bound, bound))
        self.input_bias = nn.Parameter(torch.empty(blocks).uniform_(-bound, bound))
        self.norm = norm
        if norm:
            self.norm_gain = nn.Parameter(torch.ones(hidden))
            self.norm_shift = nn.Parameter(torch.zeros(hidden))
            self.register_buffer("running_mean", torch.zeros(max_length, hidden))
            self.register_buffer("running_variance", torch.ones(max_length, hidden))

    def weight(self, rows: int, columns: int) -> nn.Parameter:
        """Make a weight initialised as in torch's RNNs: uniform in +-1/sqrt(hidden)."""
        bound = 1.0 / math.sqrt(self.hidden)
        return nn.Parameter(torch.empty(rows, columns).uniform_(-bound, bound))

    def project(self, x: Tensor) -> Tensor:
        """Compute the inputs' share of all blocks for all steps: (T, ..., N, P)."""
        return affine(x, self.input_weight, self.input_bias)

    def given_statistics(self, steps: int) -> tuple[Tensor, Tensor] | None:
        """Running statistics of each step, (T, ..., H), in evaluation; None in training."""
        if self.training or not self.norm:
            return None
        mean = self.running_mean.movedim(-2, 0)[:steps]
        return mean, self.running_variance.movedim(-2, 0)[:steps]

    def norm_parameters(self) -> tuple[Tensor | None, Tensor | None]:
        """Gain and shift of the batch norm."""
        return (self.norm_gain, self.norm_shift) if self.norm else (None, None)


class PlainCore(Core):
    """LSTM or GRU, optionally with ReLU and batch norm on the candidate."""

    def __init__(
        self,
        cell: str,
        inputs: int,
        hidden: int,
        switches: RNNSwitches,
        max_length: int,
        bptt: int,
    ) -> None:
        blocks = 4 if cell == "lstm" else 3
        norm = switches.batch_norm != "none"
        super().__init__(inputs, hidden, blocks * hidden, norm, max_length, bptt)
        self.cell = cell
        self.switches = switches
        self.recurrent = self.weight(hidden, (blocks if cell == "lstm" else 2) * hidden)
        if cell == "gru":
            self.candidate = self.weight(hidden, hidden)

    def forward(
        self, x: Tensor, valid: Tensor | None, randomness: Randomness | None, last: bool
    ) -> CoreOutput:
        """Run over (T, ..., N, E); ``last`` keeps the last valid step's state only."""
        projected = self.project(x)
        zeros = projected.new_zeros(*projected.shape[1:-1], self.hidden)
        gain, shift = self.norm_parameters()
        lstm = self.cell == "lstm"
        output = run_rnn(
            lstm_step if lstm else gru_step,
            projected,
            RNNState(zeros, zeros if lstm else None),
            LSTMWeights(self.recurrent, gain, shift)
            if lstm
            else GRUWeights(self.recurrent, self.candidate, gain, shift),
            self.switches,
            statistics=self.given_statistics(len(x)),
            valid=valid,
            bptt=self.bptt,
        )
        belief = output.final.hidden.unsqueeze(0) if last else output.hidden
        return CoreOutput(belief, statistics=_statistics(output))


class ParticleCore(Core):
    """PF-LSTM or PF-GRU."""

    def __init__(
        self,
        cell: str,
        inputs: int,
        hidden: int,
        particles: int,
        switches: FilterSwitches,
        max_length: int,
        bptt: int,
        keep_particles: bool,
    ) -> None:
        blocks = 5 if cell == "lstm" else 4
        norm = switches.batch_norm != "none"
        super().__init__(inputs, hidden, blocks * hidden + 1, norm, max_length, bptt)
        self.cell = cell
        self.switches = switches
        self.particles = particles
        self.keep_particles = keep_particles
        self.recurrent = self.weight(hidden, (blocks if cell == "lstm" else 3) * hidden)
        if cell == "gru":
            self.candidate = self.weight(hidden, hidden)
        self.observation = nn.Parameter(self.weight(1, hidden).detach().squeeze(0))

    def initial(self, projected: Tensor) -> PFState:
        """All particles at zero with equal weights; noise tells them apart at the first step."""
        shape = (*projected.shape[1:-1], self.particles)
        zeros = projected.new_zeros(*shape, self.hidden)
        weights = uniform_log_weights(*shape, device=projected.device, dtype=projected.dtype)
        return PFState(zeros, zeros if self.cell == "lstm" else None, weights)

    def forward(
        self, x: Tensor, valid: Tensor | None, randomness: Randomness | None, last: bool
    ) -> CoreOutput:
        """Run over (T, ..., N, E); ``last`` keeps the last valid step's particles only."""
        projected = self.project(x)
        gain, shift = self.norm_parameters()
        lstm = self.cell == "lstm"
        output = run_pf(
            pf_lstm_step if lstm else pf_gru_step,
            projected,
            self.initial(projected),
            None if randomness is None else randomness.normal,
            None if randomness is None else randomness.uniform,
            PFLSTMWeights(self.recurrent, self.observation, gain, shift)
            if lstm
            else PFGRUWeights(self.recurrent, self.candidate, self.observation, gain, shift),
            self.switches,
            statistics=self.given_statistics(len(x)),
            valid=valid,
            bptt=self.bptt,
            particles=self.keep_particles and not last,
            belief=not last,
        )
        if last:
            final = output.final
            log_weights = final.log_weights.unsqueeze(0)
            particles = final.hidden.unsqueeze(0)
            belief = mean_particle(particles, log_weights)
        else:
            log_weights, particles, belief = output.log_weights, output.hidden, output.belief
        return CoreOutput(
            belief,
            particles if self.keep_particles else None,
            log_weights,
            output.ess,
            output.ancestors,
            _statistics(output),
        )


def _statistics(output: object) -> Statistics | None:
    mean = getattr(output, "step_mean", None)
    if mean is None:
        return None
    return Statistics(mean, output.step_variance, output.step_count)  # type: ignore[attr-defined]
