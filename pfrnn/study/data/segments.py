"""Windows of recordings: cut, assigned to splits by whole groups, scaled on train only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.base import SPLITS, Protocol, Split

LEAKY_NOTE = (
    "LEAKY ON PURPOSE: overlapping windows of one recording stand in train and in test; the "
    "accuracy says nothing about a new recording."
)


class WindowsProtocol(Protocol):
    """A protocol of overlapping windows; a set says which splits it has, and its default."""

    split: str

    @property
    def leaky(self) -> bool:
        """True for the split that puts overlapping windows on several sides on purpose."""
        return self.split == "random_windows"


class Windows(NamedTuple):
    """Windows of one or more recordings; N windows of T steps with D inputs.

    Attributes:
        x: float64 (N, T, D), in the sensors' units.
        y: int64 (N,), the class at the last step.
        rows: int64 (N, T), source row behind each step.
    """

    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


def cut_windows(
    values: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    length: int,
    stride: int,
) -> Windows:
    """Cut one uninterrupted recording into windows; the class is the one at the last step.

    Args:
        values: (n, D); fewer than ``length`` steps give no window.
        labels: (n,), class of each step.
        rows: (n,), source row of each step.
        length: steps of a window.
        stride: steps from one window's start to the next's.

    Example:
        >>> steps = np.arange(5)
        >>> cut_windows(steps[:, None], steps, steps, length=3, stride=2).rows.tolist()
        [[0, 1, 2], [2, 3, 4]]
    """
    starts = np.arange(0, len(values) - length + 1, stride)
    index = starts[:, None] + np.arange(length)
    return Windows(
        x=np.asarray(values, dtype=np.float64)[index],
        y=np.asarray(labels, dtype=np.int64)[starts + length - 1],
        rows=np.asarray(rows, dtype=np.int64)[index],
    )


def join(parts: Sequence[Windows]) -> Windows:
    """Put windows of several recordings together, in the order given."""
    return Windows(
        x=np.concatenate([part.x for part in parts]),
        y=np.concatenate([part.y for part in parts]),
        rows=np.concatenate([part.rows for part in parts]),
    )


def assign(weights: Mapping[str, int], validation: float, test: float, seed: int) -> dict[str, str]:
    """Give whole groups, in random order, to test and validation until each has its share.

    Train gets the rest. Shares count by weight, since recordings differ in length.

    Args:
        weights: group -> its number of windows (or 1 for equal shares of groups).
        validation: wanted share of the weight, at least; 0 for none.
        test: likewise.
        seed: of the order.

    Returns:
        Group -> train, validation or test.

    Randomness:
        one permutation from ``numpy.random.default_rng(seed)``.

    Example:
        >>> sorted(assign({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, 0.2, 0.2, seed=0).values())
        ['test', 'train', 'train', 'train', 'validation']
    """
    names = sorted(weights)
    total = sum(weights.values())
    # 1e-9: five groups and a share of 0.2 must give one group, whatever 0.2 * 5 rounds to.
    wanted = {"test": test * total - 1e-9, "validation": validation * total - 1e-9}
    got = {"test": 0, "validation": 0}
    result: dict[str, str] = {}
    for index in np.random.default_rng(seed).permutation(len(names)):
        name = names[index]
        split = next((part for part in wanted if got[part] < wanted[part]), "train")
        if split in got:
            got[split] += weights[name]
        result[name] = split
    return result


def assign_windows(
    groups: Mapping[str, Sequence[Windows]], validation: float, test: float, seed: int
) -> dict[str, Windows]:
    """Spread single windows over the splits at random: leaks wherever windows overlap."""
    windows = join([part for name in sorted(groups) for part in groups[name]])
    order = np.random.default_rng(seed).permutation(len(windows.y))
    counts = [round(len(order) * share) for share in (test, validation)]
    tested, validated, trained = np.split(order, np.cumsum(counts))
    chosen = {"train": trained, "validation": validated, "test": tested}
    return {
        name: Windows(windows.x[index], windows.y[index], windows.rows[index])
        for name, index in ((name, np.sort(drawn)) for name, drawn in chosen.items())
    }


def sides_of(parts: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """Turn split -> groups into group -> split."""
    return {name: split for split, names in parts.items() for name in names}


def by_split(
    groups: Mapping[str, Sequence[Windows]], sides: Mapping[str, str]
) -> dict[str, Windows]:
    """Join the windows of all groups of each split.

    Raises:
        DataError: a split would be empty.
    """
    parts: dict[str, list[Windows]] = {name: [] for name in SPLITS}
    for group in sorted(groups):
        parts[sides[group]].extend(groups[group])
    for name, found in parts.items():
        if not sum(len(part.y) for part in found):
            raise DataError(
                f"no window for the split {name}: the recordings are too few or too short; shorten "
                "the protocol's window, or fetch the whole file"
            )
    return {name: join(found) for name, found in parts.items()}


def scaled_splits(
    parts: Mapping[str, Windows], robust: bool = False, clip: float | None = None
) -> dict[str, Split]:
    """Scale the inputs with statistics of train and pack the splits.

    Args:
        parts: windows of each split.
        robust: median and quartile distance / 1.349 (equal to the standard deviation for normal
            data) instead of mean and standard deviation; for sensors with spikes.
        clip: largest scaled size of an input; None keeps all.
    """
    train = parts["train"].x.reshape(-1, parts["train"].x.shape[-1])
    if robust:
        low, center, high = np.quantile(train, [0.25, 0.5, 0.75], axis=0)
        scale = (high - low) / 1.349
    else:
        center, scale = train.mean(axis=0), train.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    splits = {}
    for name, windows in parts.items():
        x = (windows.x - center) / scale
        if clip is not None:
            x = x.clip(-clip, clip)
        count, steps = windows.rows.shape
        mask = np.zeros((count, steps), dtype=np.bool_)
        mask[:, -1] = True
        splits[name] = Split(
            x=x.astype(np.float32), length=np.full(count, steps, dtype=np.int32),
            y=windows.y, mask=mask, rows=windows.rows,
        )  # fmt: skip
    return splits
