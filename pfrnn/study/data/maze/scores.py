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
    """Summarise squared errors (N, T) of N trajectories under the names of the metrics.

    The mean at the last step is the paper's metric, but a mirrored pose costs tens of units, so a
    few trajectories carry it: the median, the 90th percentile and ``success`` (per cent of
    trajectories whose last error is below 1) belong beside it. Standard errors are over
    trajectories.
    """
    last = errors[:, -1]
    count = len(errors)
    return {
        "last_step_mse": float(last.mean()),
        "last_step_mse_se": float(last.std() / np.sqrt(count)),
        "all_steps_mse": float(errors.mean()),
        "all_steps_mse_se": float(errors.mean(axis=1).std() / np.sqrt(count)),
        "median": float(np.median(last)),
        "p90": float(np.quantile(last, 0.9)),
        "success": 100.0 * float((last < 1.0).mean()),
        "trajectories": float(count),
    }
