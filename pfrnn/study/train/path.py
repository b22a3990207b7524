"""The compute path: one training step and one evaluation step of a population.

``PlainPath`` is torch's eager mode. A faster path (a compiled or fused step) is another class
with the same methods; ``choose_path`` decides and says why. ``GraphedPath`` replays any of them.

A step has two parts. The host's chooses the batch and makes random numbers, or the keys they
derive from. The device's (``step``, ``evaluate``) is a function of tensors in fixed memory which
it reads and writes in place, and never waits for the host, so that it can be captured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pfrnn.kernels.dispatch import Choice
from pfrnn.study.config import Training
from pfrnn.study.train.batches import Batch, DeviceSplit, Rows, gather
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.flat import Flat, FlatRMSprop, FlatUpdate, KernelUpdate
from pfrnn.study.train.loss import LossWeights, member_loss
from pfrnn.study.train.members import Member
from pfrnn.study.train.networks import ExperimentNetwork, NetworkSpec
from pfrnn.study.train.noise import NoiseShape, draw, draw_dropout
from pfrnn.study.train.optimiser import Hyper, Stacked, Update, rmsprop
from pfrnn.study.train.population import Population
from pfrnn.study.train.running import running_statistics
from pfrnn.study.train.scores import Predicted, Scores, scores

if TYPE_CHECKING:
    from pfrnn.study.train.kernel_loop import KernelLoop

Result = TypeVar("Result")


class PlainPath:
    """Eager torch on any device; the loop over time may be another (:meth:`take`).

    Where the loop is in kernels, so are products of sequences (:mod:`pfrnn.kernels.linear`) and the
    update (:mod:`pfrnn.kernels.rmsprop`).
    """

    graph = "off"

    def __init__(self, spec: NetworkSpec, weights: LossWeights, training: Training) -> None:
        self.spec = spec
        self.weights = weights
        self.training = training
        self.network = ExperimentNetwork(spec)
        self.stochastic = spec.kind == "particle"
        self._device = torch.device("cpu")
        self._flat: FlatRMSprop | None = None
        self._way, self._why = "plain", "torch's eager mode"
        self.loop: KernelLoop | None = None

    @property
    def name(self) -> str:
        """How the loop over time is computed."""
        return self._way if self.loop is None else self.loop.name

    @property
    def reason(self) -> str:
        """Why it is computed so."""
        return self._why if self.loop is None else self.loop.reason

    def take(self, choice: Choice) -> None:
        """Compute the loop over time as chosen."""
        if choice.name == "fused":
            # Here, because it imports Triton, which torch brings on CUDA machines only.
            from pfrnn.study.train.kernel_loop import KernelLoop

            self.loop = KernelLoop(self.network.core, choice)
        else:
            self._way, self._why = choice.name, choice.reason
            self.network.core.run = choice.run

    def build(self) -> nn.Module:
        """Make one freshly initialised model."""
        return ExperimentNetwork(self.spec)

    def decays(self, name: str) -> bool:
        """Whether L2 acts on a parameter."""
        return True

    def release(self) -> None:
        """Drop what is held between two steps."""
        self._flat = None

    def beside(self) -> AbstractContextManager[None]:
        """What is computed inside beside the loop, kernels compute where the loop is theirs."""
        return nullcontext() if self.loop is None else self.loop.beside()

    def attempt(self, work: Callable[[], Result]) -> Result:
        """Do a step's work; after a failure of kernels again, by the plain loop."""
        return work() if self.loop is None else self.loop.attempt(work)

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
        with self.beside():
            output = functional_call(
                self.network, {**parameters, **buffers}, (batch.x, batch.valid, randomness)
            )
            loss = member_loss(self.spec.task, self.weights, output, batch)
        return Predicted(output, loss)

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
        # Members share nothing, so the gradient of the losses' sum holds each one's own.
        gradients = torch.autograd.grad(
            loss, list(leaves.values()), torch.ones_like(loss),
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
        with torch.no_grad(), self.beside():
            named = dict(zip(leaves, gradients, strict=True))
            # One comparison for both: a comparison with NaN is false.
            finite = population.finite & (loss.abs() < math.inf)
            decay, epsilon = self.training.rmsprop_decay, self.training.rmsprop_eps
            flat = self._flat_update(population, hyper)
            moved = running_statistics(population, output.statistics)
            update: Update | FlatUpdate | KernelUpdate
            if flat is not None:
                update = flat.update(named, decay, epsilon, finite)
            else:
                state = (population.parameters, population.square_average)
                update = rmsprop(
                    state[0], named, state[1], hyper, decay, epsilon, finite, self.decays, asks
                )
                new = (update.parameters, update.square_average)
                moved += [(a[name], b[name]) for a, b in zip(state, new, strict=True) for name in a]
            sequences = batch.x.shape[2]
            weighted = loss * sequences
            # Nothing below can fail: no memory is asked for.
            if flat is not None and isinstance(update, FlatUpdate | KernelUpdate):
                flat.write(update)
            if moved:
                torch._foreach_copy_([old for old, _ in moved], [new for _, new in moved])
            sums = population.sums
            torch._foreach_add_([sums[0], sums[2]], [weighted, update.gradient_norm])
            sums[1].add_(sequences)
            population.finite.copy_(update.moves)
            population.clock.add_(1)

    def _flat_update(self, population: Population, hyper: Hyper) -> FlatRMSprop | None:
        """The update of a population in one piece of memory, made in its first step; else None."""
        parameters, squares = population.parameters, population.square_average
        if not (isinstance(parameters, Flat) and isinstance(squares, Flat)):
            return None
        if self._flat is None or not self._flat.belongs_to(parameters, squares, hyper):
            self._flat = FlatRMSprop(parameters, squares, hyper, self.decays)
        return self._flat

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

        def work() -> Scores:
            predicted = self.predict(population, members, batch, axes, best)
            with self.beside():
                return scores(predicted, batch, split)

        return self.attempt(work)
