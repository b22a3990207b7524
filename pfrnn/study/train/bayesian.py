"""The compute path of Bayesian RNNs: one weight sample a batch, predictions averaged over S."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pfrnn.study.config import Bayesian, Training
from pfrnn.study.train.batches import Batch, Cut
from pfrnn.study.train.bayes_by_backprop import (
    BayesianNetwork,
    MixturePrior,
    kl_sample,
    sample_weights,
    sharpen,
    split_posterior,
)
from pfrnn.study.train.evaluate import Predicted
from pfrnn.study.train.loss import LossWeights, member_loss
from pfrnn.study.train.members import Member
from pfrnn.study.train.networks import ExperimentNetwork
from pfrnn.study.train.noise import step_seed
from pfrnn.study.train.optimiser import Stacked
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Weights
from pfrnn.study.train.spec import NetworkSpec

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
        self._like: Stacked = {}
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
        """Standard normal numbers of every weight, each member's from its own seed.

        Args:
            means: any tensors with the weights' names and, after one axis, shapes.
            members: M of them.
            axes: name the use; part of every seed.
        """
        first = next(iter(means.values()))
        generator = torch.Generator(first.device)
        sizes = [value[0].numel() for value in means.values()]
        flat = first.new_empty(len(members), sum(sizes))
        for place, member in enumerate(members):
            generator.manual_seed(step_seed(member, *axes, "weights"))
            flat[place].normal_(generator=generator)
        parts = flat.split(sizes, 1)
        return {
            name: part.reshape(len(members), *value.shape[1:])
            for (name, value), part in zip(means.items(), parts, strict=True)
        }

    def _shapes(self, device: torch.device) -> Stacked:
        """One member's weights as :meth:`_noise` wants their shapes; their numbers are none."""
        first = next(iter(self._like.values()), None)
        if first is None or first.device != device:
            self._like = {
                name: torch.empty(1, *value.shape, dtype=value.dtype, device=device)
                for name, value in self.network.named_parameters()
            }
        return self._like

    def training_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], cut: Cut, device: torch.device
    ) -> Any:
        """Noise of the weights, of the sharpened weights or None, and the network's own numbers."""
        shapes = self._shapes(device)
        sharpened = None
        if self.settings.sharpening:
            sharpened = self._noise(shapes, members, (*axes, "sharpened"))
        inner = super().training_randomness(members, axes, cut, device)
        return self._noise(shapes, members, axes), sharpened, inner

    def evaluation_randomness(
        self, members: Sequence[Member], axes: Sequence[str | int], cut: Cut, device: torch.device
    ) -> Any:
        """Noise of S weight samples.

        One set of samples for the whole split: the batch's number is no part of the seed.
        """
        shapes = self._shapes(device)
        count = self.settings.prediction_samples
        return [self._noise(shapes, members, (*axes[:-1], number)) for number in range(count)]

    def losses(self, weights: Weights, batch: Batch, randomness: Any) -> Predicted:
        """Draw the network's weights, add the weighted KL to the loss."""
        noise, sharpened, inner = randomness
        means, rhos = split_posterior(weights.parameters)
        drawn = sample_weights(means, rhos, noise)
        divergence = kl_sample(drawn, means, rhos, self.prior, lead=1)
        if sharpened is not None:
            # The same dropout in both: the gradient and the loss see one network.
            _, loss = self.forward(Weights(drawn, weights.buffers), batch, inner, True)
            drawn, extra = self._sharpened(drawn, loss, sharpened)
            divergence = divergence + extra
        predicted = self.forward(Weights(drawn, weights.buffers), batch, inner, True)
        return predicted._replace(loss=predicted.loss + divergence / self.sequences)

    def _sharpened(self, weights: Stacked, loss: Tensor, noise: Stacked) -> tuple[Stacked, Tensor]:
        """Sharpened weights and KL(q(theta | phi, batch) || p(theta | phi))."""
        gradients = torch.autograd.grad(loss.sum(), list(weights.values()), retain_graph=True)
        named = dict(zip(weights, (gradient.detach() for gradient in gradients), strict=True))
        rate = self.settings.sharpening_rate
        moved = sharpen(weights, named, rate)
        drawn = {name: value + SHARPENING_SIGMA * noise[name] for name, value in moved.items()}
        shifts = torch.stack([g.square().flatten(1).sum(1) for g in named.values()]).sum(0)
        return drawn, shifts * rate**2 / (2 * SHARPENING_SIGMA**2)

    def evaluate(self, weights: Weights, batch: Batch, randomness: Any) -> Predicted:
        """Average predictions (classification: probabilities) over S weight samples."""
        means, rhos = split_posterior(weights.parameters)
        found = []
        with torch.no_grad():
            for noise in randomness:
                drawn = Weights(sample_weights(means, rhos, noise), weights.buffers)
                found.append(self.forward(drawn, batch, None, False).output)
            stacked = torch.stack([output.prediction for output in found])
            output = found[0]._replace(prediction=mixture(stacked, self.spec.task))
            return Predicted(output, member_loss(self.spec.task, self.weights, output, batch))


def mixture(predictions: Tensor, task: str) -> Tensor:
    """Average predictions (S, ...), or the log of averaged probabilities for logits (S, ..., C)."""
    if task != "classification":
        return predictions.mean(0)
    return torch.log_softmax(predictions, -1).logsumexp(0) - math.log(len(predictions))
