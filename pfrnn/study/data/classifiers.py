"""Controls of the sensor sets: majority class and plain classifiers of window summaries."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.base import Split
from pfrnn.study.data.controls import logistic_regression, majority, summary_features

TREES = 100


def sensor_controls(splits: Mapping[str, Split]) -> dict[str, npt.NDArray[np.int64]]:
    """Predict the test windows' classes without a recurrent network.

    All three have fixed settings and learn from train and validation together, since nothing is
    chosen on validation here.

    Args:
        splits: train, validation and test with vector inputs.

    Returns:
        Control -> labels (N,) of the test split: ``majority``, ``logistic_regression`` and
        ``random_forest`` (100 trees), the last two on each window's summary and last reading.

    Randomness:
        the forest's own, seeded with 0: a control is the same in every study.
    """
    from sklearn.ensemble import RandomForestClassifier

    seen = _together(splits["train"], splits["validation"])
    test = splits["test"]
    forest = RandomForestClassifier(n_estimators=TREES, random_state=0, n_jobs=1)
    forest.fit(_features(seen), seen.y)
    return {
        "majority": majority(seen.y, len(test.y)),
        "logistic_regression": logistic_regression(seen, test),
        "random_forest": np.asarray(forest.predict(_features(test)), dtype=np.int64),
    }


def _together(first: Split, second: Split) -> Split:
    return Split(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))


def _features(split: Split) -> npt.NDArray[np.float64]:
    """The summary of each window, and its last reading: the class is the last step's."""
    last = split.x[np.arange(len(split.x)), split.length - 1]
    return np.concatenate([summary_features(split), last.astype(np.float64)], axis=1)
