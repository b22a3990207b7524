"""The loss of each member: prediction + beta * ELBO, the paper's reduction."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from pfrnn.config import Loss
from pfrnn.functional.losses import (
    Kind,
    combined_loss,
    elbo_loss,
    exponential_time_weights,
    prediction_loss,
)
from pfrnn.nn.networks import NetworkOutput
from pfrnn.training.batches import Batch
from pfrnn.variants import Variant

# Weight of a heading coordinate in the authors' release.
HEADING = 0.1


class LossWeights(NamedTuple):
    """Weights of the two losses; 0 leaves one out.

    Attributes:
        prediction: of the prediction loss.
        beta: of the ELBO.
        release: whether both are reduced as in the authors' release.
    """

    prediction: float
    beta: float
    release: bool = False


def loss_weights(loss: Loss, variant: Variant, fidelity: str = "paper") -> LossWeights:
    """Resolve the configuration's weights, the variant's switches and the reduction.

    The reduction is the configuration's, or where it names none the filter's fidelity's.
    """
    return LossWeights(
        prediction=loss.prediction if variant.prediction_loss else 0.0,
        beta=loss.beta if variant.elbo_loss else 0.0,
        # The release has particle filters only; other models have the paper's loss.
        release=(loss.reduction or fidelity) == "authors_code" and variant.kind == "particle",
    )


def member_loss(task: str, weights: LossWeights, output: NetworkOutput, batch: Batch) -> Tensor:
    """Sum over time, mean over sequences: (M,), or a scalar for one model.

    Args:
        task: regression, classification or localization.
        weights: weights of the two losses. The release's reductions (docs/fidelity.md) hold for
            regression and localisation; it has no classification, which keeps the paper's.
        output: of the network.
        batch: targets and mask.

    Raises:
        ValueError: an ELBO is asked for but the network returned no particles.
    """
    target: Tensor = batch.y
    mask: Tensor | None = batch.mask
    kind: Kind = "regression"
    if task == "classification":
        # The network returns the last valid step only; its label is the sequence's.
        target, mask, kind = batch.y.unsqueeze(0), None, "classification"
    forms = _release_forms(task, output) if weights.release and kind == "regression" else ({}, {})
    prediction = prediction_loss(output.prediction, target, kind, mask=mask, **forms[0])
    if weights.beta == 0:
        return combined_loss(prediction, None, weights.prediction)
    if output.particles is None:
        raise ValueError("an ELBO needs particle predictions, got a network output without them")
    elbo = elbo_loss(output.particles, target, kind, mask=mask, **forms[1])
    return combined_loss(prediction, elbo, weights.prediction, weights.beta)


def _release_forms(task: str, output: NetworkOutput) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of the two losses in the authors' release.

    Later steps weigh more (exp(0.1 t), normalised), the heading (here sine and cosine) a tenth;
    the prediction loss is a sum over the batch, the ELBO a mean over batch and time.
    """
    like = output.prediction
    shared: dict[str, Any] = {
        "time_weights": exponential_time_weights(len(like), device=like.device, dtype=like.dtype)
    }
    if task == "localization":
        # Filled on the device: a tensor made from numbers on the host would wait for its copy.
        weights = like.new_full((4,), HEADING)
        weights[:2].fill_(1.0)
        shared["coordinate_weights"] = weights
    return (
        {**shared, "coordinates": "sum", "batch": "sum"},
        {**shared, "form": "per_coordinate", "time": "mean"},
    )
