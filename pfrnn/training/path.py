"""The compute path: one training step and one evaluation step of a population.

``PlainPath`` is torch's eager mode. A faster path (a compiled or fused step) is another class
with the same methods; ``choose_path`` decides and says why. ``GraphedPath`` replays any of them.

A step has two parts. The host's chooses the batch and makes random numbers, or the keys they
derive from. The device's (``step``, ``evaluate``) is a function of tensors in fixed memory which
it reads and writes in place, and never waits for the host, so that it can be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pfrnn.config import Training
from pfrnn.functional.batch_norm import Statistics, update_running
from pfrnn.nn.cores import Randomness
from pfrnn.nn.networks import ExperimentNetwork, NetworkSpec
from pfrnn.training.batches import Batch, DeviceSplit, Rows, gather
from pfrnn.training.loss import LossWeights, member_loss
from pfrnn.training.members import Member
from pfrnn.training.noise import NoiseShape, draw, draw_dropout
from pfrnn.training.optimiser import Hyper, Stacked, rmsprop
from pfrnn.training.population import Population
from pfrnn.training.scores import Predicted, Scores, scores

# Weight of a new batch in the running batch-norm statistics, once 1/n has fallen below it.
_MOMENTUM = 0.1
_RUNNING = "core.cell.running"

Result = TypeVar("Result")


class PlainPath:
    """Eager torch on any device."""

    name = "plain"
    reason = "torch's eager mode"
    graph = "off"

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

    def release(self) -> None:
        """Nothing is held between two steps."""

    def attempt(self, work: Callable[[], Result]) -> Result:
        """Do a step's work; a path that can go on another way after a failure does it again."""
        return work()

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
        return draw(members, axes, batch.lengths, shape, batch.x.device, len(batch.x))

    def _training_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Any:
        """A training step's numbers, dropout's mask too: tensors, or tuples and dicts of them."""
        drawn = self._randomness(members, axes, batch)
        if self.spec.dropout == 0:
            return drawn
        mask = self._dropout(members, axes, batch)
        return (Randomness() if drawn is None else drawn)._replace(dropout=mask)

    def _evaluation_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], batch: Batch
    ) -> Any:
        """An evaluation step's numbers, likewise."""
        return self._randomness(members, axes, batch)

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

    def losses(
        self, parameters: Stacked, buffers: Stacked, batch: Batch, randomness: Any
    ) -> Predicted:
        """Run a training batch on the numbers of :meth:`_training_randomness`."""
        return self.forward(parameters, buffers, batch, randomness, True)

    def outputs(
        self, parameters: Stacked, buffers: Stacked, batch: Batch, randomness: Any
    ) -> Predicted:
        """Run an evaluation batch on the numbers of :meth:`_evaluation_randomness`."""
        return self.forward(parameters, buffers, batch, randomness, False)

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
        return self.losses(leaves, population.buffers, batch, randomness)

    def step(
        self,
        population: Population,
        hyper: Hyper,
        batch: Batch,
        randomness: Any,
        asks: bool = True,
    ) -> None:
        """The device's part of a training step: all tensors are written in place, at the end.

        A step that raises (out of memory) changes nothing.

        Args:
            population: its tensors are read and written; its counters on the host are not.
            hyper: the members' settings.
            batch: of the training split.
            randomness: of :meth:`_training_randomness`.
            asks: whether the host may look at numbers (never while it is captured).
        """
        leaves = {
            name: value.detach().requires_grad_() for name, value in population.parameters.items()
        }
        output, loss = self.losses(leaves, population.buffers, batch, randomness)
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
                asks,
            )
            finite &= torch.isfinite(update.gradient_norm)
            moved = running_statistics(population, output.statistics)
            sequences = batch.x.shape[2]
            row = [loss * sequences, torch.full_like(loss, sequences), update.gradient_norm]
            moved.append((population.sums, population.sums + torch.stack(row)))
            for old, new in (
                (population.parameters, update.parameters),
                (population.square_average, update.square_average),
            ):
                moved += [(old[name], new[name]) for name in old]
            # Nothing below can fail: no memory is asked for.
            torch._foreach_copy_([old for old, _ in moved], [new for _, new in moved])
            population.finite.copy_(finite)
            population.clock.add_(1)

    def train_step(
        self, population: Population, members: Sequence[Member], hyper: Hyper, batch: Batch
    ) -> None:
        """Update ``population`` in place; nothing changes when the step raises."""
        axes = ("train", population.epoch, population.step)
        self.attempt(
            lambda: self.step(
                population, hyper, batch, self._training_randomness(members, axes, batch)
            )
        )
        population.count_step()

    def train_on(
        self,
        population: Population,
        members: Sequence[Member],
        hyper: Hyper,
        split: DeviceSplit,
        rows: Rows,
    ) -> None:
        """Gather and :meth:`train_step`."""
        self.train_step(population, members, hyper, gather(split, rows))

    def evaluate(
        self, population: Population, batch: Batch, randomness: Any, best: bool
    ) -> Predicted:
        """The device's part of an evaluation step."""
        parameters = population.best_parameters if best else population.parameters
        buffers = population.best_buffers if best else population.buffers
        with torch.no_grad():
            return self.outputs(parameters, buffers, batch, randomness)

    def predict(
        self,
        population: Population,
        members: Sequence[Member],
        batch: Batch,
        axes: Sequence[str | int],
        best: bool,
    ) -> Predicted:
        """Evaluate the current or the best state with the noise that ``axes`` name."""
        return self.attempt(
            lambda: self.evaluate(
                population, batch, self._evaluation_randomness(members, axes, batch), best
            )
        )

    def score_on(
        self,
        population: Population,
        members: Sequence[Member],
        split: DeviceSplit,
        rows: Rows,
        axes: Sequence[str | int],
        best: bool,
    ) -> Scores:
        """Gather, :meth:`predict`, and keep what counts."""
        batch = gather(split, rows)
        return scores(self.predict(population, members, batch, axes, best), batch, split)


def running_statistics(
    population: Population, own: Statistics | None
) -> list[tuple[Tensor, Tensor]]:
    """Move the running batch-norm statistics of each time step towards the batch's.

    The n-th update weighs 1/n until that falls to 0.1, so that a short training isn't judged on
    statistics that still remember their start.

    Returns:
        Pairs of what the population holds for the batch's time steps, and its new value.
    """
    if own is None:
        return []
    steps = len(own.mean)
    before = [population.buffers[f"{_RUNNING}.{name}"] for name in ("mean", "variance")]
    old = (before[0][..., :steps, :], before[1][..., :steps, :])
    momentum = (population.clock + 1).double().reciprocal().clamp(min=_MOMENTUM)
    new = update_running(
        old,
        Statistics(own.mean.movedim(0, -2), own.variance.movedim(0, -2), own.count.movedim(0, -1)),
        momentum.to(old[0].dtype),
    )
    return list(zip(old, new, strict=True))
