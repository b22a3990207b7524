"""The loss of each member: prediction + beta * ELBO, the paper's reduction."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pfrnn.config import Loss
from pfrnn.data.base import Task
from pfrnn.functional.losses import combined_loss, elbo_loss, prediction_loss
from pfrnn.nn.networks import NetworkOutput
from pfrnn.training.batches import Batch
from pfrnn.variants import Variant


class LossWeights(NamedTuple):
    """Weights of the two losses; 0 leaves one out."""

    prediction: float
    beta: float


def loss_weights(loss: Loss, variant: Variant) -> LossWeights:
    """Resolve the configuration's weights and the variant's switches."""
    return LossWeights(
        prediction=loss.prediction if variant.prediction_loss else 0.0,
        beta=loss.beta if variant.elbo_loss else 0.0,
    )


def member_loss(task: Task, weights: LossWeights, output: NetworkOutput, batch: Batch) -> Tensor:
    """Sum over time, mean over sequences: (M,), or a scalar for one model.

    Raises:
        ValueError: an ELBO is asked for but the network returned no particles.
    """
    if task == "classification":
        # The network returns the last valid step only; its label is the sequence's.
        target, mask, kind = batch.y.unsqueeze(0), None, "classification"
    else:
        target, mask, kind = batch.y, batch.mask, "regression"
    prediction = prediction_loss(output.prediction, target, kind, mask=mask)
    if weights.beta == 0:
        return combined_loss(prediction, None, weights.prediction)
    if output.particles is None:
        raise ValueError("an ELBO needs particle predictions, got a network output without them")
    elbo = elbo_loss(output.particles, target, kind, mask=mask)
    return combined_loss(prediction, elbo, weights.prediction, weights.beta)
