"""Windows of recordings: cut, dealt to splits whole group by whole group, scaled on train only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.errors import DataError
from pfrnn.study.data.base import SPLITS, Alternative, Protocol, Split
from pfrnn.study.data.scaling import Floats
from pfrnn.study.seeding import derive_seed

LEAKY_NOTE = (
    "LEAKY ON PURPOSE: overlapping windows of one recording stand in train and in test; the "
    "accuracy says nothing about a new recording."
)


class WindowsProtocol(Protocol):
    """A protocol of overlapping windows; a set says which splits it has, and its default."""

    added: ClassVar[tuple[str, ...]] = ("split_seed",)

    split: str
    split_seed: int = Field(0, ge=0, description="Another draw of the split; 0: the study's own.")

    @property
    def leaky(self) -> bool:
        """True for the split that puts overlapping windows on several sides on purpose."""
        return self.split == "random_windows"

    def draw(self, seed: int) -> int:
        """Return the seed that the split is drawn from."""
        return derive_seed(seed, "split", self.split_seed) if self.split_seed else seed


def split_draws(values: Mapping[str, Any]) -> tuple[Alternative, ...]:
    """Name further draws of a split; with its own draw they are five."""
    return tuple(
        Alternative(f"draw{n}", {**values, "split_seed": n}, "Another draw of the split.")
        for n in range(1, 5)
    )


class Windows(NamedTuple):
    """Windows of one or more recordings; N windows of T steps with D inputs.

    Attributes:
        x: float64 (N, T, D), in the sensors' units.
        y: int64 (N,), the class at the last step.
        rows: int64 (N, T), source row behind each step.
    """

    x: Floats
    y: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]

    def take(self, index: npt.NDArray[Any]) -> Windows:
        """Return the windows at ``index``."""
        return Windows(self.x[index], self.y[index], self.rows[index])


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
    return Windows(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def assign_by_weight(
    weights: Mapping[str, int], validation: float, test: float, seed: int
) -> dict[str, str]:
    """Give whole groups, in random order, to test and validation until each has its share.

    Train gets the rest. Shares count by weight, since recordings differ in length.

    Args:
        weights: group -> its number of windows.
        validation: wanted share of the weight, at least.
        test: likewise.
        seed: of the order, one permutation from ``numpy.random.default_rng(seed)``.

    Returns:
        Group -> train, validation or test.
    """
    names = sorted(weights)
    total = sum(weights.values())
    # 1e-9: five groups and a share of 0.2 must give one group, whatever 0.2 * 5 rounds to.
    wanted = {"test": test * total - 1e-9, "validation": validation * total - 1e-9}
    got = {"test": 0, "validation": 0, "train": 0}
    result: dict[str, str] = {}
    for index in np.random.default_rng(seed).permutation(len(names)):
        name = names[index]
        result[name] = next((part for part in wanted if got[part] < wanted[part]), "train")
        got[result[name]] += weights[name]
    return result


def deal_windows(
    groups: Mapping[str, Windows], validation: float, test: float, seed: int
) -> dict[str, Windows]:
    """Spread single windows over the splits at random: leaks wherever windows overlap."""
    windows = join([groups[name] for name in sorted(groups)])
    order = np.random.default_rng(seed).permutation(len(windows.y))
    counts = [round(len(order) * share) for share in (test, validation)]
    tested, validated, trained = np.split(order, np.cumsum(counts))
    chosen = {"train": trained, "validation": validated, "test": tested}
    return {name: windows.take(np.sort(chosen[name])) for name in SPLITS}


def deal_groups(groups: Mapping[str, Windows], sides: Mapping[str, str]) -> dict[str, Windows]:
    """Join the windows of all groups of each split, in the groups' sorted order.

    Args:
        groups: group -> its windows.
        sides: group -> split.

    Raises:
        DataError: a split would be empty.
    """
    result = {}
    for name in SPLITS:
        parts = [groups[group] for group in sorted(groups) if sides[group] == name]
        if not any(len(part.y) for part in parts):
            raise DataError(
                f"no window for the split {name}: the recordings are too few or too short; shorten "
                "the protocol's window, or fetch the whole file"
            )
        result[name] = join(parts)
    return result


def scaled_splits(
    parts: Mapping[str, Windows],
    center: Floats | None = None,
    scale: Floats | None = None,
    clip: float = np.inf,
) -> dict[str, Split]:
    """Scale the inputs and pack the splits.

    Args:
        parts: windows of each split.
        center: (D,), subtracted; default: the mean over train's windows.
        scale: (D,), divided by; default: the standard deviation over train's windows.
        clip: largest scaled size of an input.
    """
    train = parts["train"].x.reshape(-1, parts["train"].x.shape[-1])
    center = train.mean(axis=0) if center is None else center
    scale = train.std(axis=0) if scale is None else scale
    scale = np.where(scale > 0, scale, 1.0)
    splits = {}
    for name, windows in parts.items():
        x = ((windows.x - center) / scale).clip(-clip, clip)
        count, steps = windows.rows.shape
        splits[name] = Split(
            x=x.astype(np.float32),
            length=np.full(count, steps, dtype=np.int32),
            y=windows.y,
            mask=np.tile(np.arange(steps) == steps - 1, (count, 1)),
            rows=windows.rows,
        )
    return splits


def robust_scale(windows: Windows) -> tuple[Floats, Floats]:
    """Median and quartile distance / 1.349 of each input, for sensors with spikes."""
    values = windows.x.reshape(-1, windows.x.shape[-1])
    low, center, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    return center, (high - low) / 1.349
