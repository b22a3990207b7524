"""Standardising columns with statistics of the training rows only, and causal imputation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Scaler(NamedTuple):
    """Mean and standard deviation of each column.

    Shape:
        mean, std: (D,); std is 1 where a column is constant.
    """

    mean: Floats
    std: Floats

    def apply(self, values: Floats) -> npt.NDArray[np.float32]:
        """Standardise (..., D) values; the result is float32."""
        return ((values - self.mean) / self.std).astype(np.float32)

    def undo(self, values: npt.NDArray[np.floating]) -> Floats:
        """Return standardised (..., D) values to the columns' units."""
        return np.asarray(values, dtype=np.float64) * self.std + self.mean


def fit_scaler(train: Floats, observed: Bools | None = None) -> Scaler:
    """Fit mean and standard deviation to the observed training values.

    Args:
        train: (rows, D) values of training rows; no other rows may be in it.
        observed: (rows, D), False where a value is missing; None when none is.

    Returns:
        A scaler. A column without any observed value gets mean 0 and standard deviation 1.

    Example:
        >>> fit_scaler(np.array([[1.0], [3.0]])).apply(np.array([[2.0]])).item()
        0.0
    """
    kept = np.ones(train.shape, dtype=bool) if observed is None else observed
    count = kept.sum(axis=0)
    divisor = np.maximum(count, 1)
    mean = np.where(kept, train, 0.0).sum(axis=0) / divisor
    variance = (np.where(kept, train - mean, 0.0) ** 2).sum(axis=0) / divisor
    # Rounding leaves about 1e-16 of the mean squared in a constant column.
    constant = variance <= 1e-20 * np.maximum(mean**2, 1.0)
    return Scaler(mean, np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance))))


def carry_forward(values: Floats, observed: Bools, start: Floats) -> Floats:
    """Replace missing values by the last one observed before them: causal, no look ahead.

    Args:
        values: (rows, D) in order of time.
        observed: (rows, D), False where a value is missing.
        start: (D,), used before a column's first observed value (the training mean).

    Returns:
        (rows, D) without gaps.
    """
    rows = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(observed, rows, -1), axis=0)
    carried = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, carried, start)
