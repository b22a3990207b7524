"""Checks on prepared arrays: their shape contract, and the leakage audit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from pfrnn.errors import DataError
from pfrnn.study.data.base import SPLITS, Arrays, Split, Task
from pfrnn.study.data.splits import sequence_keys


def check_contract(arrays: Arrays, task: Task) -> None:
    """Check that every split has the types, shapes and values that ``Split`` promises.

    Raises:
        DataError: naming the split and the array.
    """
    if tuple(arrays.splits) != SPLITS:
        raise DataError(f"splits: expected {', '.join(SPLITS)}, got {', '.join(arrays.splits)}")
    for name, split in arrays.splits.items():
        # Values can be looked at only where the shapes are right.
        for fault in _wrong_shapes(split, arrays, task) or _wrong_values(split, arrays, task):
            raise DataError(f"prepared arrays, split {name}: {fault}")


def _wrong_shapes(split: Split, arrays: Arrays, task: Task) -> list[str]:
    count, steps = split.mask.shape
    tokens = arrays.vocabulary > 0
    y_type = "int64" if task == "classification" else "float32"
    expected = {"x": "int32" if tokens else "float32", "length": "int32", "y": y_type}
    expected |= {"mask": "bool", "rows": "int64"}
    faults = [
        f"{field}: expected type {kind}, got {getattr(split, field).dtype}"
        for field, kind in expected.items()
        if getattr(split, field).dtype != np.dtype(kind)
    ]
    shapes = {"x": split.x.shape[:2], "rows": split.rows.shape}
    if task != "classification":
        shapes["y"] = split.y.shape[:2]
    faults += [
        f"{field}: expected shape ({count}, {steps}, ...), got {shape}"
        for field, shape in shapes.items()
        if shape != (count, steps)
    ]
    if len(split.length) != count or len(split.y) != count or not count:
        faults.append(f"expected {count} > 0 sequences in every array")
    if not tokens and split.x.ndim == 3 and len(arrays.features) != split.x.shape[2]:
        faults.append(f"features: {len(arrays.features)} names for {split.x.shape[2]} columns")
    return faults


def _wrong_values(split: Split, arrays: Arrays, task: Task) -> list[str]:
    steps = split.mask.shape[1]
    faults = []
    if not np.isfinite(split.x).all() or not np.isfinite(split.y).all():
        faults.append("x or y has a value that is not finite")
    if split.length.min() < 1 or split.length.max() > steps:
        faults.append(f"length: expected 1 to {steps}")
    valid = np.arange(steps) < split.length[:, None]
    if (split.mask & ~valid).any():
        faults.append("mask is True in the padding")
    if (split.rows[~valid] != -1).any():
        faults.append("rows: expected -1 in the padding")
    if task == "classification" and not (
        split.y.min() >= 0 and split.y.max() < len(arrays.classes)
    ):
        faults.append(f"y: expected labels 0 to {len(arrays.classes) - 1}")
    return faults


def shared_rows(splits: Mapping[str, Split]) -> list[str]:
    """Say which pairs of splits share source rows, a sentence each; empty: nothing leaks."""
    rows = {name: np.unique(split.rows[split.rows >= 0]) for name, split in splits.items()}
    found = []
    for a, b in combinations(splits, 2):
        shared = np.intersect1d(rows[a], rows[b], assume_unique=True)
        if len(shared):
            found.append(f"{len(shared)} source rows are in {a} and in {b} (first: {shared[0]})")
    return found


def equal_sequences(splits: Mapping[str, Split]) -> list[str]:
    """Say which pairs of splits have sequences with equal inputs, a sentence each.

    For windows of a resting sensor that happens by chance, so it is named on the card; a published
    sequence that stands twice must stay on one side.
    """
    keys = {name: set(sequence_keys(split)) for name, split in splits.items()}
    pairs = ((a, b, len(keys[a] & keys[b])) for a, b in combinations(splits, 2))
    return [f"{count} sequences of {a} stand in {b}, too" for a, b, count in pairs if count]
