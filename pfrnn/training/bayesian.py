"""The compute path of Bayesian RNNs: one weight sample a batch, predictions averaged over S."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pfrnn.config import Bayesian, Training
from pfrnn.nn.bayesian import (
    BayesianNetwork,
    MixturePrior,
    kl_sample,
    sample_weights,
    sharpen,
    split_posterior,
)
from pfrnn.nn.cores import Randomness
from pfrnn.nn.networks import ExperimentNetwork, NetworkSpec
from pfrnn.training.batches import Batch
from pfrnn.training.loss import LossWeights, member_loss
from pfrnn.training.members import Member
from pfrnn.training.noise import step_seed
from pfrnn.training.optimiser import Stacked
from pfrnn.training.path import PlainPath, Predicted
from pfrnn.training.population import Population

# Posterior sharpening (an option): the standard deviation around the sharpened weights.
SHARPENING_SIGMA = 0.02


class BayesianPath(PlainPath):
    """Eager torch for a population of Bayesian RNNs.

    The loss of a batch is the mean negative log-likelihood of its sequences plus KL / n, n being
    the number of training sequences: over an epoch the likelihood of every sequence and the KL
    once, which is the weighting of Fortunato et al. (1 / (batches * truncations) for each
    truncated batch; our update gathers all truncations of a batch) divided by the batch size.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        weights: LossWeights,
        training: Training,
        settings: Bayesian,
        sequences: int,
    ) -> None:
        super().__init__(spec, weights, training)
        self.stochastic = True
        self.settings = settings
        self.sequences = sequences
        self.prior = MixturePrior(
            settings.prior_pi, settings.prior_log_sigma1, settings.prior_log_sigma2
        )

    def build(self) -> BayesianNetwork:
        """Make one freshly initialised posterior."""
        return BayesianNetwork(
            lambda: ExperimentNetwork(self.spec), self.settings.posterior_rho_init
        )

    def decays(self, name: str) -> bool:
        """L2 acts on the means; on rho it would widen the posterior."""
        return name.startswith("mean.")

    def _noise(
        self, means: Stacked, members: Sequence[Member], axes: Sequence[str | int]
    ) -> Stacked:
        """Standard normal numbers of every weight, each member's from its own seed."""
        first = next(iter(means.values()))
        generator = torch.Generator(first.device)
        sizes = [value[0].numel() for value in means.values()]
        flat = first.new_empty(len(members), sum(sizes))
        for place, member in enumerate(members):
            generator.manual_seed(step_seed(member, *axes, "weights"))
            flat[place].normal_(generator=generator)
        parts = flat.split(sizes, 1)
        return {
            name: part.reshape(value.shape)
            for (name, value), part in zip(means.items(), parts, strict=True)
        }

    def training_loss(
        self,
        leaves: Stacked,
        population: Population,
        members: Sequence[Member],
        batch: Batch,
        axes: Sequence[str | int],
    ) -> Predicted:
        """Draw the weights, add the weighted KL to the loss."""
        means, rhos = split_posterior(leaves)
        weights = sample_weights(means, rhos, self._noise(means, members, axes))
        divergence = kl_sample(weights, means, rhos, self.prior, lead=1)
        # One mask a step: the sharpening's gradient and the loss see the same network.
        mask = self._training_randomness(members, axes, batch)
        if self.settings.sharpening:
            weights, extra = self._sharpened(weights, population, members, batch, axes, mask)
            divergence = divergence + extra
        predicted = self.forward(weights, population.buffers, batch, mask, True)
        return predicted._replace(loss=predicted.loss + divergence / self.sequences)

    def _sharpened(
        self,
        weights: Stacked,
        population: Population,
        members: Sequence[Member],
        batch: Batch,
        axes: Sequence[str | int],
        mask: Randomness | None,
    ) -> tuple[Stacked, Tensor]:
        """Sharpened weights and KL(q(theta | phi, batch) || p(theta | phi))."""
        _, loss = self.forward(weights, population.buffers, batch, mask, True)
        gradients = torch.autograd.grad(loss.sum(), list(weights.values()), retain_graph=True)
        named = dict(zip(weights, (gradient.detach() for gradient in gradients), strict=True))
        rate = self.settings.sharpening_rate
        moved = sharpen(weights, named, rate)
        noise = self._noise(moved, members, (*axes, "sharpened"))
        drawn = {name: value + SHARPENING_SIGMA * noise[name] for name, value in moved.items()}
        shifts = torch.stack([g.square().flatten(1).sum(1) for g in named.values()]).sum(0)
        return drawn, shifts * rate**2 / (2 * SHARPENING_SIGMA**2)

    def predict(
        self,
        population: Population,
        members: Sequence[Member],
        batch: Batch,
        axes: Sequence[str | int],
        best: bool,
    ) -> Predicted:
        """Average predictions (classification: probabilities) over S weight samples."""
        parameters = population.best_parameters if best else population.parameters
        buffers = population.best_buffers if best else population.buffers
        # One set of weight samples for the whole split: the batch's number is no part of the seed.
        axes = axes[:-1]
        with torch.no_grad():
            means, rhos = split_posterior(parameters)
            outputs = []
            for number in range(self.settings.prediction_samples):
                weights = sample_weights(means, rhos, self._noise(means, members, (*axes, number)))
                outputs.append(self.forward(weights, buffers, batch, None, False).output)
            stacked = torch.stack([output.prediction for output in outputs])
            output = outputs[0]._replace(prediction=mixture(stacked, self.spec.task))
            return Predicted(output, member_loss(self.spec.task, self.weights, output, batch))


def mixture(predictions: Tensor, task: str) -> Tensor:
    """Average predictions (S, ...), or the log of averaged probabilities for logits (S, ..., C)."""
    if task != "classification":
        return predictions.mean(0)
    return torch.log_softmax(predictions, -1).logsumexp(0) - math.log(len(predictions))
