"""Dividing a data set: by time, by group, and the seeded caps of small tiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.base import Protocol, Split
from pfrnn.study.seeding import derive_seed


def by_time(rows: int, validation: float, test: float) -> dict[str, range]:
    """Cut ``rows`` time steps into three consecutive parts, the last one for the test.

    Args:
        rows: number of steps, in order of time.
        validation: share of the validation part, in (0, 1).
        test: share of the test part, in (0, 1).

    Example:
        >>> by_time(10, validation=0.2, test=0.2)
        {'train': range(0, 6), 'validation': range(6, 8), 'test': range(8, 10)}
    """
    first = round(rows * (1 - validation - test))
    second = round(rows * (1 - test))
    if not 0 < first < second < rows:
        raise DataError(
            f"{rows} rows can't be divided into shares {1 - validation - test:g}, {validation:g}, "
            f"{test:g}: a part would be empty; use more rows or larger shares"
        )
    return {"train": range(first), "validation": range(first, second), "test": range(second, rows)}


def by_group(
    labels: Mapping[str, int], validation: float, test: float, seed: int
) -> dict[str, str]:
    """Deal whole groups (sequences, persons) to the splits, class by class, by a seeded draw.

    Each class gives ``round(share * its groups)`` groups to test and to validation, at least one
    each where it has three groups or more.

    Args:
        labels: group -> class.
        validation: share of the validation part, in (0, 1).
        test: share of the test part, in [0, 1).
        seed: the draw's seed.

    Returns:
        Group -> train, validation or test.
    """
    sides = dict.fromkeys(labels, "train")
    for label in sorted(set(labels.values())):
        groups = [group for group, its in labels.items() if its == label]
        generator = np.random.default_rng(derive_seed(seed, "groups", int(label)))
        order = [groups[i] for i in generator.permutation(len(groups))]
        least = 1 if len(groups) >= 3 else 0
        tests = max(least, round(test * len(groups))) if test > 0 else 0
        validations = max(least, round(validation * len(groups)))
        sides |= dict.fromkeys(order[:tests], "test")
        sides |= dict.fromkeys(order[tests : tests + validations], "validation")
    return sides


def take(split: Split, index: npt.NDArray[np.int64] | Sequence[int]) -> Split:
    """Return the sequences at ``index``, in that order."""
    chosen = np.asarray(index, dtype=np.int64)
    return Split(*(values[chosen] for values in split))


def sequence_keys(split: Split) -> list[bytes]:
    """Return each sequence's inputs, valid steps only, as bytes that compare equal when they do."""
    return [split.x[i, :length].tobytes() for i, length in enumerate(split.length)]


def cap_index(split: str, sequences: int, protocol: Protocol, seed: int) -> npt.NDArray[np.int64]:
    """Choose which sequences of a split the protocol's cap keeps.

    Args:
        split: train, validation or test.
        sequences: how many there are.
        protocol: whose ``max_<split>`` holds.
        seed: the draw's seed.

    Returns:
        Sorted indices; all of them where there is no cap or the split is smaller.
    """
    maximum: int | None = getattr(protocol, f"max_{split}")
    if maximum is None or maximum >= sequences:
        return np.arange(sequences, dtype=np.int64)
    generator = np.random.default_rng(derive_seed(seed, "cap", split))
    return np.sort(generator.choice(sequences, size=maximum, replace=False)).astype(np.int64)
