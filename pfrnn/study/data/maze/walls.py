"""Geometry of walls for the exact posterior: signed distance, blocked moves, free headings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.maze.maps import Maze
from pfrnn.study.data.maze.simulator import World, direction

Array = npt.NDArray[np.float64]

# Obstacles are looked up this many cells beyond the map's border.
_BORDER = 2
# Grid of the table of random moves: places a cell's side, and headings.
_PER_UNIT, _HEADINGS = 80, 90


class Walls:
    """What the posterior asks of a map's obstacles; the map's outside is an obstacle.

    Args:
        maze: the map.
        world: gives the range of step lengths.
    """

    def __init__(self, maze: Maze, world: World) -> None:
        extra = _BORDER - 1
        self._blocked = np.pad(maze.occupied, extra, constant_values=True)
        self._flat = self._blocked.ravel()
        self._columns = self._blocked.shape[1]
        self._around = self._neighbourhoods()
        self.shortest = world.step_length - world.step_noise
        self.longest = world.step_length + world.step_noise
        if self.longest >= 1.0:
            raise DataError(
                f"exact posterior: expected moves shorter than a cell, got up to {self.longest:g}"
            )
        bits = self._around[:, None] >> np.arange(9)
        self._around_blocked = (bits & 1).astype(np.float64)
        self._ends = _end_shares(self.shortest, self.longest)

    def _neighbourhoods(self) -> npt.NDArray[np.int16]:
        """Nine bits a cell: whether each cell of its 3 x 3 neighbourhood is blocked."""
        padded = np.pad(self._blocked, 1, constant_values=True)
        rows, columns = self._blocked.shape
        bits = np.zeros(self._blocked.shape, dtype=np.int16)
        for bit in range(9):
            dy, dx = divmod(bit, 3)
            bits |= padded[dy : dy + rows, dx : dx + columns].astype(np.int16) << bit
        return bits.ravel()

    def _cells(self, points: Array) -> tuple[npt.NDArray[np.int64], Array, Array]:
        """Flat cell index and the offsets within the cell, of points (P, 2)."""
        floor = np.floor(points)
        index = floor.astype(np.int64) + _BORDER
        rows = np.minimum(np.maximum(index[:, 1], 0), len(self._blocked) - 1)
        columns = np.minimum(np.maximum(index[:, 0], 0), self._columns - 1)
        inside = points - floor
        return rows * self._columns + columns, inside[:, 0], inside[:, 1]

    def is_blocked(self, points: Array) -> npt.NDArray[np.bool_]:
        """Whether points (P, 2) are not free."""
        return self._flat[self._cells(points)[0]]

    def depth(self, points: Array) -> Array:
        """Signed distance (P,): how deep in an obstacle; negative: how far from the nearest.

        Exact while below 1 in size, cut there; 1-Lipschitz in the point.
        """
        cell, x, y = self._cells(points)
        bits = self._around[cell]
        blocked = (bits >> 4) & 1
        best = np.ones(len(points))
        across = (x * x, np.zeros_like(x), np.square(1.0 - x))
        along = (y * y, np.zeros_like(y), np.square(1.0 - y))
        for bit in range(9):
            if bit == 4:
                continue
            dy, dx = divmod(bit, 3)
            other = ((bits >> bit) & 1) != blocked
            np.minimum(best, across[dx] + along[dy], out=best, where=other)
        distance = np.sqrt(best)
        return np.where(blocked == 1, distance, -distance)

    def blocked_share(self, points: Array, heading: Array) -> Array:
        """Probability (P,) that a move along ``heading`` (degrees) would not end in a free cell.

        The end runs over a stretch much shorter than a cell, so it crosses at most one grid line
        each way: at most three pieces, each wholly free or wholly blocked.
        """
        along = direction(heading)
        if self.longest == self.shortest:
            return self.is_blocked(points + self.shortest * along).astype(np.float64)
        first = points + self.shortest * along
        line = np.floor(first) + (along > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = (line - points) / along
        crossing = np.where(along == 0, self.longest, crossing)
        cuts = np.sort(np.clip(crossing, self.shortest, self.longest), axis=1)
        ends = np.full(len(points), self.longest)
        starts = np.full(len(points), self.shortest)
        edges = np.column_stack([starts, cuts, ends])
        total = np.zeros(len(points))
        for piece in range(3):
            middle = (edges[:, piece] + edges[:, piece + 1]) / 2
            stretch = edges[:, piece + 1] - edges[:, piece]
            total += stretch * self.is_blocked(points + middle[:, None] * along)
        share: Array = total / (self.longest - self.shortest)
        return share

    def clearance(self, points: Array, heading: Array) -> Array:
        """Lower bound (P,) of the distance from a straight move's possible ends to obstacles."""
        along = direction(heading)
        samples = np.linspace(self.shortest, self.longest, 3)
        nearest = np.full(len(points), np.inf)
        for length in samples:
            nearest = np.minimum(nearest, -self.depth(points + length * along))
        bound: Array = nearest - (self.longest - self.shortest) / 4
        return bound

    def free_share(self, points: Array) -> Array:
        """Probability (P,) that a move along a random heading ends in a free cell.

        The end lies in one of the nine cells around; how often in which depends on the place in
        the cell only (a table), and which of them are blocked on the map.
        """
        cell, x, y = self._cells(points)
        place = (y * _PER_UNIT).astype(np.int64) * _PER_UNIT + (x * _PER_UNIT).astype(np.int64)
        share: Array = 1.0 - (self._ends[place] * self._around_blocked[cell]).sum(axis=1)
        return share


def _end_shares(shortest: float, longest: float) -> Array:
    """Share of random moves that end in each of the nine cells: (places in the cell, 9).

    Midpoints over the heading, three-point Gauss-Legendre quadrature over the length.
    """
    inner = (np.arange(_PER_UNIT) + 0.5) / _PER_UNIT
    points = np.stack(np.meshgrid(inner, inner), axis=-1).reshape(-1, 2)
    nodes, weights = np.polynomial.legendre.leggauss(3)
    lengths = (longest + shortest) / 2 + (longest - shortest) / 2 * nodes
    shares = np.zeros((len(points), 9))
    every = np.arange(len(points))
    for angle in (np.arange(_HEADINGS) + 0.5) * (360.0 / _HEADINGS):
        for length, weight in zip(lengths, weights, strict=True):
            step = np.floor(points + length * direction(np.array(angle))).astype(np.int64) + 1
            shares[every, 3 * step[:, 1] + step[:, 0]] += weight / 2 / _HEADINGS
    return shares
