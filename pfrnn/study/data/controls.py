"""Controls: simple predictors that every learned model must be compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.base import Split
from pfrnn.study.data.scaling import Floats, fit_scaler

# Penalty a row on standardised columns: enough to invert collinear ones, too little to bias.
RIDGE = 1e-6


def regression_scores(
    prediction: Floats, truth: Floats, mask: npt.NDArray[Any]
) -> dict[str, float]:
    """RMSE, MAE and MSE over the observed steps, in the target's unit (MSE: its square)."""
    error = (np.asarray(prediction, dtype=np.float64) - truth)[mask]
    mse = float(np.mean(error**2))
    return {"rmse": mse**0.5, "mae": float(np.mean(np.abs(error))), "mse": mse}


def control_scores(
    predictions: Mapping[str, npt.NDArray[Any]],
    test: Split,
    target_mean: tuple[float, ...],
    target_std: tuple[float, ...],
) -> dict[str, dict[str, float]]:
    """Score control predictions on the test split.

    Args:
        predictions: control -> (N, T, C) in the target's unit, or labels (N,).
        test: the split; its targets are standardised (regression) or labels.
        target_mean: per coordinate; empty for classification.
        target_std: likewise.

    Returns:
        control -> {"rmse", "mae", "mse"} or {"accuracy"} (in percent).
    """
    if not target_mean:
        return {
            name: {"accuracy": 100 * float(np.mean(np.asarray(labels) == test.y))}
            for name, labels in predictions.items()
        }
    truth = test.y.astype(np.float64) * np.asarray(target_std) + np.asarray(target_mean)
    return {
        name: regression_scores(values, truth, test.mask) for name, values in predictions.items()
    }


def persistence(filled: Floats, rows: npt.NDArray[np.int64], lag: int = 1) -> Floats:
    """Predict the target of row r + 1 by the value ``lag`` rows before it.

    Args:
        filled: (rows,) target with gaps filled causally, in its unit.
        rows: (N, T) input rows r.
        lag: 1 for persistence; the season's length for seasonal persistence.

    Returns:
        (N, T, 1).
    """
    return filled[np.maximum(rows + 1 - lag, 0)][..., None]


def linear_autoregression(
    filled: Floats,
    observed: npt.NDArray[np.bool_],
    train: range,
    rows: npt.NDArray[np.int64],
    lags: int,
) -> Floats:
    """Predict the target of row r + 1 linearly from its last ``lags`` values.

    Ridge regression, fitted to the training rows whose target was observed.

    Args:
        filled: (rows,) target with gaps filled causally, in its unit.
        observed: (rows,), True where the target was measured.
        train: the training rows.
        rows: (N, T) input rows r to predict at.
        lags: number of past values, at least 1.

    Returns:
        (N, T, 1).
    """
    last = np.arange(train.start + lags - 1, train.stop - 1)
    last = last[observed[last + 1]]
    offsets = np.arange(lags)
    at = filled[np.maximum(rows[..., None] - offsets, 0)]
    return _ridge(filled[last[:, None] - offsets], filled[last + 1], at)[..., None]


def linear_changes(
    inputs: Floats, target: Floats, train: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> Floats:
    """Predict the target of row r + 1: its value at r plus a linear function of input changes.

    Prices wander, so a regression of levels does not carry over to later days; one of changes
    does.

    Args:
        inputs: (rows, D); row r holds the inputs known for predicting row r + 1.
        target: (rows,), in its unit.
        train: (n,), input rows r to learn from.
        rows: (N, T) input rows r to predict at.

    Returns:
        (N, T, 1).
    """
    change = np.diff(inputs, axis=0, prepend=inputs[:1])
    step = _ridge(change[train], target[train + 1] - target[train], change[rows])
    return (target[rows] + step)[..., None]


def _ridge(design: Floats, y: Floats, at: Floats) -> Floats:
    """Fit y to standardised columns of ``design`` (n, D), evaluate at (..., D)."""
    scaler = fit_scaler(design)
    x = (design - scaler.mean) / scaler.std
    gram = x.T @ x + RIDGE * len(x) * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x.T @ (y - y.mean()))
    result: Floats = ((at - scaler.mean) / scaler.std) @ weights + y.mean()
    return result


def majority(train_labels: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Predict the most frequent training class ``count`` times."""
    return np.full(count, np.bincount(train_labels).argmax(), dtype=np.int64)


def summary_features(split: Split) -> Floats:
    """Summarise each sequence: mean, standard deviation, minimum, maximum, mean |change|.

    Returns:
        (N, 5 D), over valid steps only.
    """
    rows = []
    for sequence, length in zip(split.x, split.length, strict=True):
        values = sequence[:length].astype(np.float64)
        change = np.abs(np.diff(values, axis=0)).mean(axis=0) if length > 1 else 0 * values[0]
        parts = [values.mean(axis=0), values.std(axis=0), values.min(axis=0), values.max(axis=0)]
        rows.append(np.concatenate([*parts, change]))
    return np.asarray(rows)


def sensor_controls(splits: Mapping[str, Split]) -> dict[str, npt.NDArray[np.int64]]:
    """Predict the test windows' classes without a recurrent network.

    All three have fixed settings and learn from train and validation together, since nothing is
    chosen on validation here.

    Args:
        splits: train, validation and test with vector inputs.

    Returns:
        Control -> labels (N,) of the test split: ``majority``, ``logistic_regression`` on each
        window's summary and ``random_forest`` (100 trees) on that and its last reading.

    Randomness:
        the forest's own, seeded with 0: a control is the same in every study.
    """
    from sklearn.ensemble import RandomForestClassifier

    pairs = zip(splits["train"], splits["validation"], strict=True)
    seen, test = Split(*(np.concatenate(pair) for pair in pairs)), splits["test"]
    forest = RandomForestClassifier(n_estimators=100, random_state=0, n_jobs=1)
    forest.fit(_with_last(seen), seen.y)
    return {
        "majority": majority(seen.y, len(test.y)),
        "logistic_regression": logistic_regression(seen, test),
        "random_forest": np.asarray(forest.predict(_with_last(test)), dtype=np.int64),
    }


def _with_last(split: Split) -> Floats:
    """The summary of each window, and its last reading: the class is the last step's."""
    last = split.x[np.arange(len(split.x)), split.length - 1]
    return np.concatenate([summary_features(split), last.astype(np.float64)], axis=1)


def logistic_regression(train: Split, test: Split) -> npt.NDArray[np.int64]:
    """Predict the test classes by logistic regression on ``summary_features``."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(summary_features(train), train.y)
    return np.asarray(model.predict(summary_features(test)), dtype=np.int64)
