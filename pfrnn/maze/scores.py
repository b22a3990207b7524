"""Localisation errors in map units, in one place for the controls and the exact reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def squared_errors(predicted: npt.NDArray[Any], true: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Squared error of the position: mean over x and y, heading left out (the release's metric).

    Args:
        predicted: (..., 2), map units.
        true: (..., 2).

    Returns:
        (...), map units squared.
    """
    difference = np.asarray(predicted, dtype=np.float64) - true
    mean: npt.NDArray[np.float64] = np.square(difference).mean(axis=-1)
    return mean


def localization_scores(errors: npt.NDArray[np.float64]) -> dict[str, float]:
    """Summarise squared errors (N, T) of N trajectories.

    The mean at the last step is the paper's metric, but a mirrored pose costs tens of units, so a
    few trajectories carry it: the median, the 90th percentile and the share of trajectories with a
    last error below 1 belong beside it.
    """
    last = errors[:, -1]
    return {
        "last_step_mse": float(last.mean()),
        "all_steps_mse": float(errors.mean()),
        "last_step_median": float(np.median(last)),
        "last_step_p90": float(np.quantile(last, 0.9)),
        "success_rate": float((last < 1.0).mean()),
    }
