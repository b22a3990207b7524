"""Bagging (Breiman 1996): averaging members' predictions, and what averaging is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.base import Task


def probabilities(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Softmax over the last axis."""
    shifted = np.asarray(logits, np.float64)
    powers = np.exp(shifted - shifted.max(-1, keepdims=True))
    result: npt.NDArray[np.float64] = powers / powers.sum(-1, keepdims=True)
    return result


def combine(prediction: npt.NDArray[Any], task: Task) -> npt.NDArray[np.float64]:
    """Average members' predictions, or their class probabilities.

    Args:
        prediction: (E, N, ...) values, or logits (E, N, C) of E members.
        task: decides what is averaged.

    Returns:
        (N, ...) values, or (N, C) logits: the logarithm of the averaged probabilities.
    """
    if task == "classification":
        mean = probabilities(prediction).mean(0)
        result: npt.NDArray[np.float64] = np.log(np.maximum(mean, np.finfo(np.float64).tiny))
        return result
    averaged: npt.NDArray[np.float64] = np.asarray(prediction, np.float64).mean(0)
    return averaged


def ambiguity(prediction: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[float, float, float]:
    """Decompose squared error (Krogh and Vedelsby 1995): ensemble = mean member - ambiguity.

    Args:
        prediction: (E, ...) members' predictions.
        y: (...) targets.

    Returns:
        Squared error of the average, mean squared error of the members, mean squared distance of
        the members from the average.
    """
    members = np.asarray(prediction, np.float64)
    average = members.mean(0)
    return (
        float(np.square(average - y).mean()),
        float(np.square(members - y).mean()),
        float(np.square(members - average).mean()),
    )
