"""Small pieces of prepared arrays for the pictures: a few sequences, the exact posterior."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.report.samples import Arrays, nested, read_arrays

SHOWN = 3  # sequences a data set
FEATURES = 4  # input columns of a sensor sequence
ARRAYS = "arrays.npz"


def sequences(folder: Path, card: dict[str, Any]) -> dict[str, Any]:
    """Return a few test sequences; empty where the arrays are not there.

    Regression and localisation: ``lines``, the target in its unit; of a set that may not be passed
    on, its difference from the first step. Classification: ``lines``, the
    first input columns as the network sees them, one sequence a class; text: ``tokens``.
    """
    split = read_arrays(folder / ARRAYS, "test/x", "test/y", "test/length", "test/mask")
    if len(split) < 4 or not len(split["test/length"]):
        return {}
    if card["task"] == "classification":
        return _classes(split, card)
    chosen = _spread(len(split["test/length"]))
    scale, mean = (np.asarray(card[name]) for name in ("target_std", "target_mean"))
    values = split["test/y"][chosen] * scale + mean
    if not card["redistributable"]:
        values = values - values[:, :1]  # a committed report must not hold such a set's values
    lines = [
        _line(value[: int(length)], mask[: int(length)])
        for value, length, mask in zip(
            values, split["test/length"][chosen], split["test/mask"][chosen], strict=True
        )
    ]
    found = {"kind": card["task"], "lines": lines, "titles": [f"test sequence {n}" for n in chosen]}
    if card["task"] == "localization":
        return found | {"map": load_maze(str(card["name"])).grid.tolist()}
    return found | {"differences": not card["redistributable"]}


def _spread(count: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, SHOWN).round().astype(int)).tolist()


def _line(values: npt.NDArray[Any], mask: npt.NDArray[Any]) -> list[list[float | None]]:
    """Write one sequence (T, C); a step without an observed value is None."""
    rows: list[list[float | None]] = nested(values[:, :2], 4)
    return [row if seen else [None] * len(row) for row, seen in zip(rows, mask, strict=True)]


def _classes(split: Arrays, card: dict[str, Any]) -> dict[str, Any]:
    """The first sequence of each of a few classes, spread over their list."""
    labels, names = split["test/y"], card["classes"]
    present = np.unique(labels)
    chosen = [int(np.flatnonzero(labels == present[n])[0]) for n in _spread(len(present))]
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
    found = read_arrays(
        folder / ARRAYS, "test/rows", "extra/exact_rows", "extra/exact_mean", "extra/exact_samples"
    )
    if not {"test/rows", "extra/exact_rows", "extra/exact_mean"} <= found.keys():
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
