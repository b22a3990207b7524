"""The loss of each member: prediction + beta * ELBO, the paper's reduction."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from pfrnn.functional.losses import (
    Kind,
    Outputs,
    combined_loss,
    count_outputs,
    elbo_loss,
    exponential_time_weights,
    prediction_loss,
)
from pfrnn.study.config import Loss
from pfrnn.study.train.batches import Batch
from pfrnn.study.train.networks import NetworkOutput
from pfrnn.study.variants import Variant

# Weight of a heading coordinate in the authors' release.
HEADING = 0.1


class LossWeights(NamedTuple):
    """Weights of the two losses; 0 leaves one out.

    Attributes:
        prediction: of the prediction loss.
        beta: of the ELBO.
        release: whether both are reduced as in the authors' release.
        decay: whether later steps weigh more, as in the release.
    """

    prediction: float
    beta: float
    release: bool = False
    decay: bool = False


def loss_weights(loss: Loss, variant: Variant, fidelity: str = "paper") -> LossWeights:
    """Resolve the configuration's weights, the variant's switches and the reduction.

    The reduction is the configuration's, or where it names none the filter's fidelity's.
    """
    # The release has particle filters only; other models have the paper's loss.
    reduction = (loss.reduction or fidelity) if variant.kind == "particle" else "paper"
    return LossWeights(
        prediction=loss.prediction if variant.prediction_loss else 0.0,
        beta=loss.beta if variant.elbo_loss else 0.0,
        release=reduction in ("authors_code", "authors_code_undecayed"),
        decay=reduction in ("authors_code", "paper_decayed"),
    )


def member_loss(
    task: str,
    weights: LossWeights,
    output: NetworkOutput,
    batch: Batch,
) -> Tensor:
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
    mask: Tensor | Outputs | None = batch.mask
    kind: Kind = "regression"
    if task == "classification":
        # The network returns the last valid step only; its label is the sequence's.
        target, mask, kind = batch.y.unsqueeze(0), None, "classification"
    if isinstance(mask, Tensor) and weights.beta != 0:
        mask = count_outputs(mask)
    forms = _forms(task, weights, output.prediction) if kind == "regression" else ({}, {})
    prediction = prediction_loss(output.prediction, target, kind, mask=mask, **forms[0])
    if weights.beta == 0:
        return combined_loss(prediction, None, weights.prediction)
    if output.particles is None:
        raise ValueError("an ELBO needs particle predictions, got a network output without them")
    elbo = elbo_loss(output.particles, target, kind, mask=mask, **forms[1])
    return combined_loss(prediction, elbo, weights.prediction, weights.beta)


def _forms(task: str, weights: LossWeights, like: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of the two losses by what is taken from the authors' release.

    The release's time weights exp(0.1 t), normalised, are a shape of mean one (``decay``) times
    1 / T, which belongs to the scale (``release``): so either can be moved without the other, and
    both together are the release's. Its scale: the heading (here sine and cosine) counts a tenth,
    the prediction loss is a sum over the batch, the ELBO a mean over batch and time.

    Args:
        task: of the data set.
        weights: which of the two are taken.
        like: (T, ..., D), a prediction.
    """
    steps = len(like)
    shared: dict[str, Any] = {}
    if weights.decay:
        decayed = exponential_time_weights(steps, device=like.device, dtype=like.dtype)
        shared["time_weights"] = decayed if weights.release else decayed * steps
    elif weights.release:
        shared["time_weights"] = like.new_full((steps,), 1.0 / steps)
    if not weights.release:
        return shared, shared
    if task == "localization":
        # Filled on the device: a tensor made from numbers on the host would wait for its copy.
        coordinates = like.new_full((4,), HEADING)
        coordinates[:2].fill_(1.0)
        shared["coordinate_weights"] = coordinates
    return (
        {**shared, "coordinates": "sum", "batch": "sum"},
        {**shared, "form": "per_coordinate", "time": "mean"},
    )
