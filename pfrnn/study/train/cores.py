"""Recurrent cores of the experiment networks: plain and particle cells behind one interface.

A core maps encoded inputs (T, ..., N, E) to beliefs. It draws no random numbers and moves no
buffer: noise comes in, batch-norm statistics go out, and the training loop keeps both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from pfrnn.functional.batch_norm import Known, Statistics
from pfrnn.functional.belief import mean_particle
from pfrnn.functional.sequence import run_pf
from pfrnn.functional.types import FilterOutput, PFState, Readout, RNNOutput
from pfrnn.functional.weights import uniform_log_weights
from pfrnn.nn.statistics import RunningStatistics
from pfrnn.study.train.own import particle_cell, plain_cell
from pfrnn.study.train.plain import RNNRun
from pfrnn.study.train.spec import NetworkSpec

FilterRun = Callable[..., FilterOutput]


class Randomness(NamedTuple):
    """Random numbers of a step: a filter's, and dropout's.

    Attributes:
        normal: (T, ..., N, K, H) standard normal, or the key of a fused loop's own numbers; None
            without particles.
        uniform: (T, ..., N, K) in [0, 1), or a key; None without resampling.
        initial: (2, ..., N, K, H) in [0, 1), hidden and cell before the first step; None starts
            at zero.
        dropout: factors of the cell's output, 0 or 1 / (1 - rate): (T', ..., N, K, H) of the
            particles, (T', ..., N, H) of a plain cell's state; None drops nothing.
    """

    normal: Any = None
    uniform: Any = None
    initial: Tensor | None = None
    dropout: Tensor | None = None


class CoreOutput(NamedTuple):
    """What a core gives to the head; T' is 1 when only the last valid step is asked for.

    Attributes:
        belief: (T', ..., N, H), hidden state or mean particle; None where nobody needs the latter.
        particles: (T', ..., N, K, H) or None.
        read: (T', ..., N, K, C), a linear head of every particle, or None.
        log_weights: (T', ..., N, K) or None.
        ess: (T, ..., N) or None.
        ancestors: (T, ..., N, K) or None.
        statistics: batch-norm statistics of each step, mean (T, ..., C), or None.
    """

    belief: Tensor | None
    particles: Tensor | None = None
    log_weights: Tensor | None = None
    ess: Tensor | None = None
    ancestors: Tensor | None = None
    statistics: Statistics | Known | None = None
    read: Tensor | None = None


class PlainCore(nn.Module):
    """LSTM, GRU or an own cell, optionally with ReLU and batch norm on the candidate."""

    def __init__(self, spec: NetworkSpec, inputs: int) -> None:
        super().__init__()
        make = plain_cell(spec.cell, spec.own)
        switches = spec.rnn
        self.cell = make(
            inputs,
            spec.hidden,
            activation=switches.activation,
            batch_norm=switches.batch_norm,
        )
        if switches.batch_norm != "none":
            self.cell.running = RunningStatistics(spec.hidden, spec.max_length)
        self.bptt = spec.bptt
        # The loop over time; a fused one with the same arguments may take its place.
        self.run: RNNRun = self.cell.loop()

    def forward(
        self, x: Tensor, valid: Tensor | None, randomness: Randomness | None, last: bool
    ) -> CoreOutput:
        """Run over (T, ..., N, E); ``last`` keeps the last valid step's state only."""
        output = self.cell.unroll(x, valid=valid, bptt=self.bptt, update=False, run=self.run)
        belief = output.final.hidden.unsqueeze(0) if last else output.hidden
        if randomness is not None and randomness.dropout is not None:
            belief = belief * randomness.dropout
        return CoreOutput(belief, statistics=_statistics(output))


class ParticleCore(nn.Module):
    """PF-LSTM, PF-GRU or an own cell.

    Args:
        spec: the network's.
        inputs: width of the encoded input.
        mean: whether the mean particle is returned; without it the particles are, or a linear head
            of each.
    """

    def __init__(self, spec: NetworkSpec, inputs: int, mean: bool = True) -> None:
        super().__init__()
        make = particle_cell(spec.cell, spec.own)
        options = spec.filter._asdict()
        self.cell = make(inputs, spec.hidden, num_particles=spec.particles, **options)
        self.bptt = spec.bptt
        self.keep_particles = spec.keep_particles or not mean
        self.mean = mean
        # The loop over time; a fused one with the same arguments may take its place.
        self.run: FilterRun = functools.partial(run_pf, type(self.cell).step)

    def forward(
        self,
        x: Tensor,
        valid: Tensor | None,
        randomness: Randomness | None,
        last: bool,
        readout: Readout | None = None,
    ) -> CoreOutput:
        """Run over (T, ..., N, E); ``last`` keeps the last valid step's particles only.

        With a linear head ``read`` is returned instead of the particles: their states need not
        leave the loop. Dropout lies between particles and head, so that with it the particles are
        returned all the same.

        Raises:
            ValueError: there is no randomness: a filter without noise would be another model.
        """
        if randomness is None or randomness.normal is None:
            raise ValueError("a particle core needs its random numbers, got None")
        cell, dropout = self.cell, randomness.dropout
        if dropout is not None or last:
            readout = None
        kept = self.keep_particles and readout is None
        given = None
        if cell.running is not None and not self.training:
            given = cell.running.given(len(x))
        output = self.run(
            cell.project(x),
            self._initial(x, randomness),
            randomness.normal,
            randomness.uniform,
            cell.weights(),
            cell.switches,
            statistics=given,
            valid=valid,
            bptt=self.bptt,
            particles=(kept or dropout is not None) and not last,
            belief=self.mean and dropout is None and not last,
            readout=readout,
            # Ancestors are counted in evaluation; nobody goes on from the end.
            extras=not self.training,
        )
        if last:
            final = output.final
            log_weights = final.log_weights.unsqueeze(0)
            particles: Tensor | None = final.hidden.unsqueeze(0)
        else:
            log_weights, particles = output.log_weights, output.hidden
        if dropout is not None and particles is not None:
            # After the loop: the filter itself goes on with whole particles.
            particles = particles * dropout
        belief = output.belief
        if self.mean and belief is None and particles is not None:
            belief = mean_particle(particles, log_weights)
        return CoreOutput(
            belief,
            particles if kept else None,
            log_weights,
            output.ess,
            output.ancestors,
            _statistics(output),
            output.read,
        )

    def _initial(self, x: Tensor, randomness: Randomness) -> PFState:
        """Start at zero, or from given uniforms: torch's own generator is never read."""
        if randomness.initial is None:
            return self.cell.initial_state(x.shape[-2])
        hidden, cell = randomness.initial
        log_weights = uniform_log_weights(*hidden.shape[:-1], device=x.device, dtype=x.dtype)
        return PFState(hidden, cell if self.cell.has_cell else None, log_weights)


def _statistics(output: FilterOutput | RNNOutput) -> Statistics | Known | None:
    if output.step_mean is None or output.step_variance is None or output.step_count is None:
        return None
    if isinstance(output.step_count, float):
        return Known(output.step_mean, output.step_variance, output.step_count)
    return Statistics(output.step_mean, output.step_variance, output.step_count)
