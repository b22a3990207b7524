"""Cutting splits into sequences: windows for prediction, windows for classes, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.base import Split


def window_starts(rows: range, length: int, stride: int) -> npt.NDArray[np.int64]:
    """Return the first row of each window that lies wholly inside ``rows``.

    Args:
        rows: consecutive rows of one split.
        length: rows a window needs, at least 1.
        stride: rows from one window's start to the next, at least 1.

    Example:
        >>> window_starts(range(10, 20), length=4, stride=3).tolist()
        [10, 13, 16]
    """
    return np.arange(rows.start, rows.stop - length + 1, stride, dtype=np.int64)


def forecast_split(
    inputs: npt.NDArray[np.float32],
    target: npt.NDArray[np.float32],
    observed: npt.NDArray[np.bool_],
    rows: range,
    length: int,
    stride: int,
) -> Split:
    """Cut one-step-ahead sequences: at step t the inputs up to row r, the target of row r + 1.

    A window takes ``length + 1`` rows, all of them inside ``rows``: no input and no target
    crosses the border of a split.

    Args:
        inputs: (rows, D), standardised.
        target: (rows, C), standardised.
        observed: (rows,), False where the target is missing; such steps are masked.
        rows: the split's rows.
        length: steps a sequence.
        stride: rows between the starts of sequences.

    Raises:
        DataError: the split is shorter than one window.
    """
    starts = window_starts(rows, length + 1, stride)
    if not len(starts):
        raise DataError(
            f"a split of {len(rows)} rows has no window of {length} steps and one step ahead; "
            "choose a smaller window or a larger share"
        )
    index = starts[:, None] + np.arange(length)
    mask = observed[index + 1]
    return Split(
        x=inputs[index],
        length=np.full(len(starts), length, dtype=np.int32),
        y=np.where(mask[..., None], target[index + 1], np.float32(0)),
        mask=mask,
        rows=index,
    )


def label_split(
    sequences: Sequence[npt.NDArray[Any]],
    labels: Sequence[int],
    rows: Sequence[npt.NDArray[np.int64]],
    max_length: int | None = None,
) -> Split:
    """Pad sequences with a label each to one array; the prediction counts at the last valid step.

    Args:
        sequences: each (steps, D) float32 or (steps,) int32 tokens; padding is 0.
        labels: class of each.
        rows: numbers of the source rows behind each sequence's steps; padding is -1.
        max_length: steps of the padded array; default: the longest sequence's.
    """
    if not len(sequences):
        raise DataError("a split has no sequence; choose larger shares or smaller windows")
    longest = max_length or max(len(sequence) for sequence in sequences)
    first = np.asarray(sequences[0])
    count = len(sequences)
    x = np.zeros((count, longest, *first.shape[1:]), dtype=first.dtype)
    source = np.full((count, longest), -1, dtype=np.int64)
    mask = np.zeros((count, longest), dtype=bool)
    for i, (sequence, numbers) in enumerate(zip(sequences, rows, strict=True)):
        x[i, : len(sequence)] = sequence
        source[i, : len(sequence)] = numbers
        mask[i, len(sequence) - 1] = True
    length = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
    return Split(x, length, np.asarray(labels, dtype=np.int64), mask, source)
