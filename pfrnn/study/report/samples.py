"""Small summaries of a final's arrays for the figures: series over time and belief samples."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.errors import RecordError

TRAJECTORIES_KEPT = 3
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
Arrays = dict[str, npt.NDArray[Any]]


def read_arrays(path: Path, *wanted: str) -> Arrays:
    """Read an ``.npz`` file, or only the ``wanted`` arrays that it has; empty when there is none.

    Raises:
        RecordError: the file is damaged.
    """
    if not path.is_file():
        return {}
    try:
        with np.load(path) as stored:
            return {name: stored[name] for name in stored.files if name in wanted or not wanted}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path}: not a readable array file: {error}; rerun its final") from error


def series(final: Path) -> dict[str, Any]:
    """Return error over time, effective sample size over time and calibration, where known."""
    belief = read_arrays(final / "belief.npz")
    predictions = read_arrays(final / "predictions.npz")
    found: dict[str, Any] = {}
    if {"prediction", "truth", "mask"} <= predictions.keys():
        found["error"] = _error(predictions)
        found["sequences"] = len(predictions["truth"])
        found["repetitions"] = len(predictions["prediction"])
    if {"particles", "log_weights", "truth", "mask"} <= belief.keys():
        weights = _weights(belief["log_weights"])
        ess = 1.0 / np.square(weights).sum(-1) / weights.shape[-1]
        found["ess"] = _masked_mean(ess, belief["mask"])
        found["spread"] = _masked_mean(_spread(belief), belief["mask"])
        found["calibration"] = _calibration(belief)
        found["beliefs"] = len(belief["truth"])
    return found


def _error(predictions: Arrays) -> list[float]:
    """Squared error for each step: mean over runs, sequences and the first two coordinates."""
    coordinates = min(2, predictions["truth"].shape[-1])
    error = predictions["prediction"][..., :coordinates] - predictions["truth"][..., :coordinates]
    return _masked_mean(np.square(error).mean((0, -1)), predictions["mask"])


def _masked_mean(values: npt.NDArray[Any], mask: npt.NDArray[Any]) -> list[float]:
    """Mean over sequences at each step (n, T) -> T; steps that no sequence reaches are left out."""
    count = mask.sum(0)
    total = np.where(mask, values, 0.0).sum(0)
    return _rounded(total[count > 0] / count[count > 0], 6)


def _weights(log_weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    weights = np.exp(log_weights - log_weights.max(-1, keepdims=True)).astype(np.float64)
    normalised: npt.NDArray[np.float64] = weights / weights.sum(-1, keepdims=True)
    return normalised


def _calibration(belief: Arrays) -> list[float]:
    """Share of true values inside the particles' central interval, for each of ``LEVELS``.

    The weighted quantile of the truth among a step's particles is uniform for a calibrated belief.
    """
    coordinates = min(2, belief["truth"].shape[-1])
    truth = belief["truth"][:, :, None, :coordinates]
    particles = belief["particles"][..., :coordinates]
    weights = _weights(belief["log_weights"])[..., None]
    below = (weights * (particles < truth)).sum(2)
    tied = (weights * (particles == truth)).sum(2)
    rank = below + 0.5 * tied
    distance = np.abs(rank - 0.5)[belief["mask"]]
    return [round(float(np.mean(distance <= level / 2)), 5) for level in LEVELS]


def _spread(belief: Arrays) -> npt.NDArray[Any]:
    """Root mean square distance of the particles from their mean, for each step."""
    coordinates = min(2, belief["truth"].shape[-1])
    particles = belief["particles"][..., :coordinates]
    weights = _weights(belief["log_weights"])[..., None]
    mean = (weights * particles).sum(2, keepdims=True)
    spread: npt.NDArray[Any] = np.sqrt((weights * np.square(particles - mean)).sum((2, 3)))
    return spread


def belief_sample(final: Path) -> dict[str, Any]:
    """Return a few trajectories with all particles, rounded; empty when the final has none."""
    belief = read_arrays(final / "belief.npz")
    if not {"particles", "log_weights", "prediction", "truth"} <= belief.keys():
        return {}
    keep = slice(0, TRAJECTORIES_KEPT)
    return {
        "index": belief["index"][keep].tolist() if "index" in belief else [],
        "particles": nested(belief["particles"][keep]),
        "weights": nested(_weights(belief["log_weights"][keep])),
        "prediction": nested(belief["prediction"][keep]),
        "truth": nested(belief["truth"][keep]),
    }


def nested(values: npt.NDArray[Any], digits: int = 3) -> Any:
    """Return an array as rounded nested lists."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


def _rounded(values: npt.NDArray[Any], digits: int) -> list[float]:
    return [round(float(value), digits) for value in values]
