"""Square cells that cover the possible starts of several trajectories, and their moments."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

DIAGONAL = math.sqrt(2.0)  # Half diagonal of a square over its half side.
ROUNDING = 1e-7  # Violations are kept in float32.
_CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])


class Cells(NamedTuple):
    """Cells of possible starts, of several trajectories in one list.

    Attributes:
        owner: (P,), number of the trajectory.
        centre: (P, 2), map units.
        violation: (P, 2 T), of every constraint so far; an upper bound where it is negative.
            Column 2 t is the reading at t, column 2 t - 1 the path's position at t.
        worst: (P,), the largest of these.
        weight: (P,), of the turns.
    """

    owner: Index
    centre: Array
    violation: npt.NDArray[np.float32]
    worst: npt.NDArray[np.float32]
    weight: Array

    def take(self, index: npt.NDArray[np.bool_] | Index) -> Cells:
        """Return the chosen cells."""
        return Cells(
            self.owner[index],
            self.centre[index],
            self.violation[index],
            self.worst[index],
            self.weight[index],
        )

    def joined(self, other: Cells) -> Cells:
        """Return these cells and the others in one list."""
        return Cells(
            np.concatenate([self.owner, other.owner]),
            np.concatenate([self.centre, other.centre]),
            np.concatenate([self.violation, other.violation]),
            np.concatenate([self.worst, other.worst]),
            np.concatenate([self.weight, other.weight]),
        )

    def quartered(self, half: Array, seen: int) -> Cells:
        """Split every cell in four.

        Args:
            half: (n,), the half side of each trajectory's new cells.
            seen: number of constraints so far. A part's centre lies its half diagonal away from
                the whole's, so its violation is at most that much larger.
        """
        parts = self.take(np.repeat(np.arange(len(self.owner)), 4))
        side = half[parts.owner]
        parts.centre[:] += np.tile(_CORNERS, (len(self.owner), 1)) * side[:, None]
        parts.violation[:, :seen] += (side * DIAGONAL)[:, None].astype(np.float32)
        parts.weight[:] = 1.0
        return parts


def _weights(cells: Cells) -> Array:
    weights: Array = cells.weight * (cells.worst <= ROUNDING)
    return weights


def effective_cells(cells: Cells, count: int) -> Array:
    """Effective number of cells, (sum w)^2 / sum w^2, of each of ``count`` trajectories."""
    weight = _weights(cells)
    total = np.bincount(cells.owner, weight, count)
    squares = np.bincount(cells.owner, weight * weight, count)
    effective: Array = np.divide(total * total, squares, out=np.zeros(count), where=squares > 0)
    return effective


def _positive_weights(cells: Cells, count: int) -> tuple[Array, Array]:
    """Weights (P,) and their sums (n,); a set too thin for the finest cells counts all alike."""
    found = effective_cells(cells, count) > 0
    weight = np.where(found[cells.owner], _weights(cells), 1.0)
    total: Array = np.bincount(cells.owner, weight, count).astype(np.float64)
    if not (total > 0).all():
        raise DataError(
            "exact posterior: no possible start is left; the trajectories were not simulated on "
            "this map with these rules"
        )
    return weight, total


def draw(
    cells: Cells, half: Array, offset: Array, samples: int, generator: np.random.Generator
) -> Array:
    """Draw positions from the posterior: (n, samples, 2).

    Args:
        cells: the cells of n trajectories.
        half: (n,), half side of their cells.
        offset: (n, 2), from start to position.
        samples: draws a trajectory.
        generator: source of the draws.
    """
    count = len(offset)
    weight, total = _positive_weights(cells, count)
    order = np.argsort(cells.owner, kind="stable")
    cumulative = np.cumsum(weight[order])
    first = np.concatenate([[0.0], np.cumsum(total)[:-1]])
    target = first[:, None] + generator.random((count, samples)) * total[:, None]
    place = np.searchsorted(cumulative, target, side="right")
    # Rounding of the sums may put a draw just across a trajectory's border.
    ends = np.cumsum(np.bincount(cells.owner, minlength=count))
    starts = ends - np.bincount(cells.owner, minlength=count)
    chosen = order[np.clip(place, starts[:, None], ends[:, None] - 1)]
    within = generator.uniform(-1.0, 1.0, (count, samples, 2)) * half[:, None, None]
    drawn: Array = cells.centre[chosen] + within + offset[:, None]
    return drawn


def summarise(cells: Cells, offset: Array) -> tuple[Array, Array, Array]:
    """Moments of the positions start + ``offset``.

    Args:
        cells: the cells of n trajectories.
        offset: (n, 2).

    Returns:
        Mean (n, 2), variance (n,) averaged over x and y, effective number of cells (n,).

    Raises:
        DataError: a trajectory has no possible start left.
    """
    count = len(offset)
    effective = effective_cells(cells, count)
    weight, total = _positive_weights(cells, count)
    mean, variance = np.empty((count, 2)), np.zeros(count)
    for axis in range(2):
        mean[:, axis] = np.bincount(cells.owner, weight * cells.centre[:, axis], count) / total
        off = cells.centre[:, axis] - mean[cells.owner, axis]
        variance += np.bincount(cells.owner, weight * off * off, count) / total / 2
    return mean + offset, variance, effective
