"""The compute path: one training step and one evaluation step of a population.

``PlainPath`` is torch's eager mode. A faster path (a compiled or fused step) is another class
with the same methods; ``choose_path`` decides and says why.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pfrnn.config import Training
from pfrnn.functional.batch_norm import Statistics, update_running
from pfrnn.nn.cores import Randomness
from pfrnn.nn.networks import ExperimentNetwork, NetworkOutput, NetworkSpec
from pfrnn.training.batches import Batch
from pfrnn.training.loss import LossWeights, member_loss
from pfrnn.training.members import Member
from pfrnn.training.noise import NoiseShape, draw, draw_dropout
from pfrnn.training.optimiser import Hyper, Stacked, rmsprop
from pfrnn.training.population import Population

log = logging.getLogger(__name__)

# Weight of a new batch in the running batch-norm statistics, once 1/n has fallen below it.
_MOMENTUM = 0.1
_RUNNING = "core.cell.running"


class Predicted(NamedTuple):
    """Output of one evaluation step and its loss (M,)."""

    output: NetworkOutput
    loss: Tensor


class ComputePath(Protocol):
    """What the training loop needs from a path."""

    name: str
    reason: str
    stochastic: bool  # whether two evaluations with different noise differ
    spec: NetworkSpec
    weights: LossWeights
    training: Training

    def build(self) -> nn.Module:
        """Make one freshly initialised model."""

    def train_step(
        self, population: Population, members: Sequence[Member], hyper: Hyper, batch: Batch
    ) -> None:
        """Update ``population`` with one batch and add to its sums."""

    def predict(
        self,
        population: Population,
        members: Sequence[Member],
        batch: Batch,
        axes: Sequence[str | int],
        best: bool,
    ) -> Predicted:
        """Evaluate one batch with the noise that ``axes`` name."""


class PlainPath:
    """Eager torch on any device."""

    name = "plain"
    reason = "torch's eager mode"

    def __init__(self, spec: NetworkSpec, weights: LossWeights, training: Training) -> None:
        self.spec = spec
        self.weights = weights
        self.training = training
        self.network = ExperimentNetwork(spec)
        self.stochastic = spec.kind == "particle"
        self._device = torch.device("cpu")

    def build(self) -> nn.Module:
        """Make one freshly initialised model."""
        return ExperimentNetwork(self.spec)

    def decays(self, name: str) -> bool:
        """Whether L2 acts on a parameter."""
        return True

    def _training_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Randomness | None:
        """A training step's numbers: those of :meth:`_randomness`, and dropout's mask."""
        drawn = self._randomness(members, axes, batch)
        if self.spec.dropout == 0:
            return drawn
        mask = self._dropout(members, axes, batch)
        return (Randomness() if drawn is None else drawn)._replace(dropout=mask)

    def _dropout(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Tensor:
        """Factors of the cell's output, (T', M, N, K, H) or (T', M, N, H); T' is 1 for classes."""
        spec = self.spec
        steps, lengths = len(batch.x), list(batch.lengths)
        if spec.task == "classification":
            steps, lengths = 1, [1] * len(members)
        particles = (spec.particles,) if spec.kind == "particle" else ()
        sizes = (batch.x.shape[2], *particles, spec.hidden)
        return draw_dropout(members, axes, lengths, sizes, spec.dropout, batch.x.device, steps)

    def _randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Randomness | None:
        if self.spec.kind != "particle":
            return None
        spec = self.spec
        shape = NoiseShape(
            sequences=batch.x.shape[2],
            particles=spec.particles,
            hidden=spec.hidden,
            uniform=spec.filter.resampling != "none",
            initial=spec.filter.initial_state == "uniform",
        )
        return draw(members, axes, batch.lengths, shape, batch.x.device)

    def forward(
        self,
        parameters: Stacked,
        buffers: Stacked,
        batch: Batch,
        randomness: Randomness | None,
        training: bool,
    ) -> Predicted:
        """Run all members on their batches."""
        if self._device != batch.x.device:
            # Constants that no member owns (a maze's map) follow the data.
            self._device = batch.x.device
            self.network.to(self._device)
        self.network.train(training)
        output = functional_call(
            self.network, {**parameters, **buffers}, (batch.x, batch.valid, randomness)
        )
        return Predicted(output, member_loss(self.spec.task, self.weights, output, batch))

    def training_loss(
        self,
        leaves: Stacked,
        population: Population,
        members: Sequence[Member],
        batch: Batch,
        axes: Sequence[str | int],
    ) -> Predicted:
        """Run a training batch with the noise that ``axes`` name."""
        randomness = self._training_randomness(members, axes, batch)
        return self.forward(leaves, population.buffers, batch, randomness, True)

    def train_step(
        self, population: Population, members: Sequence[Member], hyper: Hyper, batch: Batch
    ) -> None:
        """Update ``population`` in place; nothing changes when the step raises."""
        axes = ("train", population.epoch, population.step)
        leaves = {
            name: value.detach().requires_grad_() for name, value in population.parameters.items()
        }
        output, loss = self.training_loss(leaves, population, members, batch, axes)
        # Members share nothing, so the gradient of the sum holds each one's own.
        gradients = torch.autograd.grad(
            loss.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        with torch.no_grad():
            finite = population.finite & torch.isfinite(loss)
            update = rmsprop(
                population.parameters,
                dict(zip(leaves, gradients, strict=True)),
                population.square_average,
                hyper,
                self.training.rmsprop_decay,
                self.training.rmsprop_eps,
                finite,
                self.decays,
            )
            finite &= torch.isfinite(update.gradient_norm)
            buffers = running_statistics(population, output.statistics)
            sequences = batch.x.shape[2]
            row = [loss * sequences, torch.full_like(loss, sequences), update.gradient_norm]
            sums = population.sums + torch.stack(row)
        population.parameters = update.parameters
        population.square_average = update.square_average
        population.buffers = buffers
        population.sums = sums
        population.finite = finite
        population.step += 1
        population.updates += 1

    def predict(
        self,
        population: Population,
        members: Sequence[Member],
        batch: Batch,
        axes: Sequence[str | int],
        best: bool,
    ) -> Predicted:
        """Evaluate the current or the best state."""
        parameters = population.best_parameters if best else population.parameters
        buffers = population.best_buffers if best else population.buffers
        with torch.no_grad():
            randomness = self._randomness(members, axes, batch)
            return self.forward(parameters, buffers, batch, randomness, False)


def running_statistics(population: Population, own: Statistics | None) -> Stacked:
    """Move the running batch-norm statistics of each time step towards the batch's.

    The n-th update weighs 1/n until that falls to 0.1, so that a short training isn't judged on
    statistics that still remember their start.
    """
    if own is None:
        return population.buffers
    momentum = max(_MOMENTUM, 1.0 / (population.updates + 1))
    steps = len(own.mean)
    buffers = dict(population.buffers)
    before = (buffers[f"{_RUNNING}.mean"], buffers[f"{_RUNNING}.variance"])
    new = update_running(
        (before[0][..., :steps, :], before[1][..., :steps, :]),
        Statistics(own.mean.movedim(0, -2), own.variance.movedim(0, -2), own.count.movedim(0, -1)),
        momentum,
    )
    for name, old, value in zip(("mean", "variance"), before, new, strict=True):
        buffers[f"{_RUNNING}.{name}"] = torch.cat([value, old[..., steps:, :]], -2)
    return buffers
