"""The compute path: one training step and one evaluation step of a population.

``PlainPath`` draws its noise as tensors; ``FusedPath`` and ``BayesianPath`` are the same with other
random numbers. ``choose_path`` decides and says why.

A step has two parts. The host's chooses the batch and makes random numbers, or the keys they
derive from. The device's (``step``, ``evaluate``) is a function of tensors in fixed memory which
it reads and writes in place, and never waits for the host, so that it can be captured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pfrnn.kernels.dispatch import Choice
from pfrnn.study.config import Training
from pfrnn.study.train.batches import Batch, Cut, DeviceSplit, Rows, cut_of, gather
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.evaluate import Predicted, Scores, scores
from pfrnn.study.train.flat import Flat, FlatRMSprop
from pfrnn.study.train.graphs import BUCKETS, Graphs
from pfrnn.study.train.loss import LossWeights, member_loss
from pfrnn.study.train.members import Member
from pfrnn.study.train.networks import ExperimentNetwork
from pfrnn.study.train.noise import draw, draw_dropout, dropout_factors
from pfrnn.study.train.optimiser import Hyper, Stacked, Update, rmsprop
from pfrnn.study.train.population import Population, Weights
from pfrnn.study.train.spec import NetworkSpec


class PlainPath:
    """Torch operations on any device; the loop over time may be another (:meth:`take`).

    Attributes:
        name: how the loop over time is computed.
        reason: why it is computed so.
        stochastic: whether two evaluations with different noise differ.
        graphs: captures steps; None runs them eagerly.
        beside: context in which kernels compute what lies beside the loop.
    """

    def __init__(self, spec: NetworkSpec, weights: LossWeights, training: Training) -> None:
        self.spec = spec
        self.weights = weights
        self.training = training
        self.network = ExperimentNetwork(spec)
        self.stochastic = spec.kind == "particle"
        self.name, self.reason = "plain", "torch's eager mode"
        self.graphs: Graphs | None = None
        self.beside: Callable[[], AbstractContextManager[None]] = nullcontext
        self._device = torch.device("cpu")
        self._flat: FlatRMSprop | None = None
        self._rates: tuple[tuple[float, ...], Tensor] | None = None

    def take(self, choice: Choice) -> None:
        """Compute the loop over time as chosen."""
        self.name, self.reason = choice.name, choice.reason
        self.network.core.run = choice.run

    def build(self) -> nn.Module:
        """Make one freshly initialised model."""
        return ExperimentNetwork(self.spec)

    def decays(self, name: str) -> bool:
        """Whether L2 acts on a parameter."""
        return True

    def release(self) -> None:
        """Free what is held for a population: another one comes next."""
        self._flat = None
        if self.graphs is not None:
            self.graphs.release()

    # The host's part: batches and random numbers.

    def train_on(
        self,
        population: Population,
        members: Sequence[Member],
        hyper: Hyper,
        split: DeviceSplit,
        rows: Rows,
    ) -> None:
        """Update ``population`` with sequences ``rows`` of a split and add to its sums.

        Nothing changes when it raises.
        """
        cut = self._cut(split, rows)
        axes = ("train", population.epoch, population.step)
        randomness = self.training_randomness(members, axes, cut, split.device)

        def step(index: Tensor, randomness: Any) -> None:
            self.step(population, hyper, gather(split, index, cut), randomness)

        key = ("train", id(population), id(split), cut.steps, cut.padded)
        self._run(key, step, (rows.device, randomness))
        population.count_step()

    def score_on(
        self,
        weights: Weights,
        members: Sequence[Member],
        split: DeviceSplit,
        rows: Rows,
        axes: Sequence[str | int],
    ) -> Scores:
        """Evaluate sequences ``rows`` with the noise that ``axes`` name.

        The result's tensors may be written again by the next call: copy what is kept.
        """
        cut = self._cut(split, rows)
        randomness = self.evaluation_randomness(members, axes, cut, split.device)

        def step(index: Tensor, randomness: Any) -> Scores:
            batch = gather(split, index, cut)
            return scores(self.evaluate(weights, batch, randomness), batch, split)

        key = ("score", id(weights.parameters), id(split), cut.steps, cut.padded)
        found: Scores = self._run(key, step, (rows.device, randomness))
        return found

    def predict(
        self,
        weights: Weights,
        members: Sequence[Member],
        split: DeviceSplit,
        rows: Rows,
        axes: Sequence[str | int],
    ) -> Predicted:
        """Evaluate sequences ``rows`` and return all that the network gives."""
        cut = cut_of(split, rows)
        randomness = self.evaluation_randomness(members, axes, cut, split.device)
        with self.beside():
            return self.evaluate(weights, gather(split, rows.device, cut), randomness)

    def _cut(self, split: DeviceSplit, rows: Rows) -> Cut:
        """Cut a batch; with graphs at few lengths, so that few are captured.

        Where the gradient is cut in between, added steps would cut it for ended sequences.
        """
        longest = int(split.host_length.max())
        widened = self.graphs is not None and longest <= self.spec.bptt
        return cut_of(split, rows, -(-longest // BUCKETS) if widened else 1)

    def _run(self, key: tuple[Any, ...], step: Callable[..., Any], inputs: Any) -> Any:
        with self.beside():
            return step(*inputs) if self.graphs is None else self.graphs.run(key, step, inputs)

    def training_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], cut: Cut, device: torch.device
    ) -> Any:
        """A training step's numbers, dropout's mask too: tensors, or tuples and dicts of them."""
        drawn = self._filter_randomness(members, axes, cut, device)
        rates = self._dropout_rates(members, device)
        if rates is None:
            return drawn
        uniform = self._dropout_uniform(members, axes, cut, device)
        mask = dropout_factors(uniform, rates)
        return (Randomness() if drawn is None else drawn)._replace(dropout=mask)

    def evaluation_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], cut: Cut, device: torch.device
    ) -> Any:
        """An evaluation step's numbers, likewise."""
        return self._filter_randomness(members, axes, cut, device)

    def _filter_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], cut: Cut, device: torch.device
    ) -> Randomness | None:
        """Noise and uniforms of a particle filter."""
        spec = self.spec
        if spec.kind != "particle":
            return None
        sizes = (cut.sequences, spec.particles, spec.hidden)
        uniform = spec.filter.resampling != "none"
        initial = spec.filter.initial_state == "uniform"
        return draw(members, axes, cut.lengths, sizes, device, cut.steps, uniform, initial)

    def _dropout_rates(self, members: Sequence[Member], device: torch.device) -> Tensor | None:
        """Each member's share of dropped outputs, (M,) float64; None where nothing is dropped."""
        own = [member.setting.dropout for member in members]
        rates = tuple(self.spec.dropout if rate is None else rate for rate in own)
        if not any(rates):
            return None
        if self._rates is None or self._rates[0] != rates or self._rates[1].device != device:
            self._rates = rates, torch.tensor(rates, dtype=torch.float64, device=device)
        return self._rates[1]

    def _dropout_uniform(
        self, members: Sequence[Member], axes: Sequence[str | int], cut: Cut, device: torch.device
    ) -> Tensor:
        """Uniforms of the cell's output, (T', M, N, K, H) or (T', M, N, H); T' is 1 for classes."""
        last = self.spec.task == "classification"
        steps, lengths = (1, [1] * len(members)) if last else (cut.steps, cut.lengths)
        return draw_dropout(
            members, axes, lengths, (cut.sequences, *self._output_sizes()), device, steps
        )

    def _output_sizes(self) -> tuple[int, ...]:
        """Sizes of the cell's output of a sequence and step: (K, H) or (H,)."""
        spec = self.spec
        return (spec.particles, spec.hidden) if spec.kind == "particle" else (spec.hidden,)

    # The device's part.

    def step(self, population: Population, hyper: Hyper, batch: Batch, randomness: Any) -> None:
        """The device's part of a training step: all tensors are written in place, at the end.

        A step that raises (out of memory) changes nothing.

        Args:
            population: its tensors are read and written; its counters on the host are not.
            hyper: the members' settings.
            batch: of the training split.
            randomness: of :meth:`training_randomness`.
        """
        leaves = {
            name: value.detach().requires_grad_() for name, value in population.parameters.items()
        }
        output, loss = self.losses(Weights(leaves, population.buffers), batch, randomness)
        # Members share nothing, so the gradient of the losses' sum holds each one's own.
        gradients = torch.autograd.grad(
            loss, list(leaves.values()), torch.ones_like(loss),
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
        with torch.no_grad():
            # One comparison for both: a comparison with NaN is false.
            finite = population.finite & (loss.abs() < math.inf)
            named = dict(zip(leaves, gradients, strict=True))
            update = self._update(population, named, hyper, finite)
            moved = population.moved_statistics(output.statistics)
            sequences = batch.x.shape[2]
            weighted = loss * sequences
            # Nothing below can fail: no memory is asked for.
            update.write()
            if moved:
                torch._foreach_copy_([old for old, _ in moved], [new for _, new in moved])
            sums = population.sums
            torch._foreach_add_([sums[0], sums[2]], [weighted, update.gradient_norm])
            sums[1].add_(sequences)
            population.finite.copy_(update.moves)
            population.clock.add_(1)

    def _update(
        self, population: Population, gradients: Stacked, hyper: Hyper, alive: Tensor
    ) -> Update:
        """Compute RMSprop's step, by a kernel where the tensors lie in one piece of memory."""
        parameters, squares = population.parameters, population.square_average
        decay, epsilon = self.training.rmsprop_decay, self.training.rmsprop_eps
        if isinstance(parameters, Flat) and isinstance(squares, Flat):
            if self._flat is None or not self._flat.belongs_to(parameters, hyper):
                self._flat = FlatRMSprop(parameters, squares, hyper, self.decays)
            return self._flat.update(gradients, decay, epsilon, alive)
        return rmsprop(parameters, gradients, squares, hyper, decay, epsilon, alive, self.decays)

    def losses(self, weights: Weights, batch: Batch, randomness: Any) -> Predicted:
        """Run a training batch on the numbers of :meth:`training_randomness`."""
        return self.forward(weights, batch, randomness, True)

    def evaluate(self, weights: Weights, batch: Batch, randomness: Any) -> Predicted:
        """Run an evaluation batch on the numbers of :meth:`evaluation_randomness`."""
        with torch.no_grad():
            return self.forward(weights, batch, randomness, False)

    def forward(
        self, weights: Weights, batch: Batch, randomness: Randomness | None, training: bool
    ) -> Predicted:
        """Run all members on their batches."""
        if self._device != batch.x.device:
            # Constants that no member owns (a maze's map) follow the data.
            self._device = batch.x.device
            self.network.to(self._device)
        self.network.train(training)
        output = functional_call(
            self.network,
            {**weights.parameters, **weights.buffers},
            (batch.x, batch.valid, randomness),
        )
        loss = member_loss(self.spec.task, self.weights, output, batch)
        return Predicted(output, loss)
