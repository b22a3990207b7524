"""Health of a particle belief: effective sample size and surviving ancestors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def effective_sample_size(log_weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Effective sample size 1 / sum(w^2) of normalised log-weights over the last axis.

    Example:
        >>> effective_sample_size(np.log([0.5, 0.5])).item()
        2.0
    """
    squares = np.exp(2.0 * np.asarray(log_weights, np.float64)).sum(-1)
    result: npt.NDArray[np.float64] = 1.0 / squares
    return result


def unique_ancestors(ancestors: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Number of distinct ancestors over the last axis (K).

    Example:
        >>> unique_ancestors(np.array([0, 0, 2, 1])).item()
        3
    """
    ordered = np.sort(ancestors, axis=-1)
    result: npt.NDArray[np.intp] = 1 + (np.diff(ordered, axis=-1) != 0).sum(-1)
    return result
