"""Small pieces of a final's and a data set's arrays, for figures."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.errors import RecordError
from pfrnn.study.data.maze.maps import load_maze

TRAJECTORIES_KEPT = 3
SHOWN = 3  # test sequences a data set
FEATURES = 4  # input columns of a sensor sequence
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
        found["spread"] = _masked_mean(spread_of(belief["particles"], weights), belief["mask"])
        found["calibration"] = _calibration(belief)
        found["beliefs"] = len(belief["truth"])
    return found


def _error(predictions: Arrays) -> list[float]:
    """Squared error for each step: mean over runs, sequences and the first two coordinates."""
    error = predictions["prediction"][..., :2] - predictions["truth"][..., :2]
    return _masked_mean(np.square(error).mean((0, -1)), predictions["mask"])


def _masked_mean(values: npt.NDArray[Any], mask: npt.NDArray[Any]) -> list[float]:
    """Mean over sequences at each step (n, T) -> T; steps that no sequence reaches are left out."""
    count = mask.sum(0)
    total = np.where(mask, values, 0.0).sum(0)
    return [round(float(x), 6) for x in total[count > 0] / count[count > 0]]


def _weights(log_weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    weights = np.exp(log_weights - log_weights.max(-1, keepdims=True)).astype(np.float64)
    return weights / weights.sum(-1, keepdims=True)


def _calibration(belief: Arrays) -> list[float]:
    """Share of true values inside the particles' central interval, for each of ``LEVELS``.

    The weighted quantile of the truth among a step's particles is uniform for a calibrated belief.
    """
    truth, particles = belief["truth"][:, :, None, :2], belief["particles"][..., :2]
    weights = _weights(belief["log_weights"])[..., None]
    below = (weights * (particles < truth)).sum(2)
    tied = (weights * (particles == truth)).sum(2)
    distance = np.abs(below + 0.5 * tied - 0.5)[belief["mask"]]
    return [round(float(np.mean(distance <= level / 2)), 5) for level in LEVELS]


def spread_of(particles: npt.NDArray[Any], weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Root mean square distance of particles (..., K, C) from their mean, by weight (..., K)."""
    places, weights = particles[..., :2], weights[..., None]
    mean = (weights * places).sum(-2, keepdims=True)
    spread: npt.NDArray[Any] = np.sqrt((weights * np.square(places - mean)).sum((-2, -1)))
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


def sequences(folder: Path, card: dict[str, Any]) -> dict[str, Any]:
    """Return a few test sequences of prepared data; empty where the arrays are not there.

    Regression and localisation: ``lines``, the target in its unit; of a set that may not be passed
    on, its difference from the first step. Classification: ``lines``, the first input columns as
    the network sees them, one sequence a class; text: ``tokens``.
    """
    split = read_arrays(folder / "arrays.npz", "test/x", "test/y", "test/length", "test/mask")
    if len(split) < 4 or not len(split["test/length"]):
        return {}
    if card["task"] == "classification":
        return _classes(split, card)
    chosen = _evenly(len(split["test/length"]))
    values = split["test/y"][chosen] * np.asarray(card["target_std"]) + card["target_mean"]
    hidden = not card["redistributable"]
    if hidden:
        values = values - values[:, :1]  # a committed report must not hold such a set's values
    lines = [
        [row if seen else [None] * len(row) for row, seen in zip(one, mask, strict=True)][:length]
        for one, mask, length in zip(
            nested(values[..., :2], 4),
            split["test/mask"][chosen],
            split["test/length"][chosen].astype(int),
            strict=True,
        )
    ]
    found = {"kind": card["task"], "lines": lines, "titles": [f"test sequence {n}" for n in chosen]}
    if card["task"] == "localization":
        return found | {"map": load_maze(str(card["name"])).grid.tolist()}
    return found | {"differences": hidden}


def _evenly(count: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, SHOWN).round().astype(int)).tolist()


def _classes(split: Arrays, card: dict[str, Any]) -> dict[str, Any]:
    """The first sequence of each of a few classes, spread over their list."""
    labels, names = split["test/y"], card["classes"]
    present = np.unique(labels)
    chosen = [int(np.flatnonzero(labels == present[n])[0]) for n in _evenly(len(present))]
    cut = [split["test/x"][n][: int(split["test/length"][n])] for n in chosen]
    titles = [str(names[int(labels[n])]) for n in chosen]
    if card["vocabulary"]:
        return {"kind": "text", "tokens": [x.tolist() for x in cut], "titles": titles}
    features = list(card["features"])[:FEATURES]
    lines = [nested(x[:, : len(features)], 4) for x in cut]
    return {"kind": "sensors", "lines": lines, "titles": titles, "features": features}


def exact_belief(folder: Path, index: list[int]) -> dict[str, Any]:
    """Return the exact posterior's mean, and draws where kept, of test sequences ``index``.

    Lists with an entry a sequence; None where the posterior was not computed for it.
    """
    names = ("test/rows", "extra/exact_rows", "extra/exact_mean", "extra/exact_samples")
    found = read_arrays(folder / "arrays.npz", *names)
    if not set(names[:3]) <= found.keys():
        return {}
    at = {int(row): place for place, row in enumerate(found["extra/exact_rows"])}
    places = [at.get(int(found["test/rows"][n, 0])) for n in index]
    samples = found.get("extra/exact_samples", np.empty((0,)))
    return {
        "exact_mean": [None if p is None else nested(found["extra/exact_mean"][p]) for p in places],
        "exact_samples": [
            None if p is None or p >= len(samples) else nested(samples[p], 2) for p in places
        ],
    }
