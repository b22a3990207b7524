"""Distances from points to the nearest landmarks of a maze, fast and exact."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.maze.maps import LANDMARK, Floats, Maze

# Points evaluated at once: keeps the temporary arrays within the processor's cache.
_CHUNK = 16384
# Side of the tiles that share a list of candidate landmarks, in map units.
_TILE = 0.25
_FAR = 1e6


def landmark_positions(maze: Maze) -> npt.NDArray[np.float64]:
    """Corners of the landmark obstacles: (4 x obstacles, 2), duplicates kept.

    Neighbouring obstacles share corners, and such a corner stands in the list once for each
    obstacle, as in the authors' release: a robot then reads its distance several times.
    """
    rows, columns = np.nonzero(maze.grid == LANDMARK)
    lower_left = np.stack([columns, maze.height - 1 - rows], axis=-1)
    corners = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    positions: npt.NDArray[np.float64] = (lower_left[:, None, :] + corners).astype(np.float64)
    return positions.reshape(-1, 2)


class NearestLandmarks:
    """Sorted distances to the ``count`` nearest landmarks, for many points at once.

    A landmark can be among the nearest of any point of a tile only if its distance to the tile's
    centre is at most (distance of the count-th nearest there) + (tile's diagonal). Each tile keeps
    the list of these candidates, so a query looks at about ten landmarks, not hundreds.

    Args:
        maze: the map; points must lie on it, border included.
        count: how many distances, e.g. 5.
        unique: drop duplicated corners first (this changes the task).
    """

    def __init__(self, maze: Maze, count: int, unique: bool = False) -> None:
        positions = landmark_positions(maze)
        if unique:
            positions = np.unique(positions, axis=0)
        if not 1 <= count <= len(positions):
            raise DataError(
                f"nearest landmarks: expected a count from 1 to the map's {len(positions)}, "
                f"got {count}"
            )
        self.count = count
        self.positions = positions
        self._columns = int(np.ceil(maze.width / _TILE))
        self._rows = int(np.ceil(maze.height / _TILE))
        self._x, self._y = self._candidates()

    def _candidates(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Coordinates of each tile's candidates: 2 x (tiles, most candidates), padded far away."""
        x = (np.arange(self._columns) + 0.5) * _TILE
        y = (np.arange(self._rows) + 0.5) * _TILE
        centres = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 1, 2)
        distance = np.hypot(
            centres[..., 0] - self.positions[:, 0], centres[..., 1] - self.positions[:, 1]
        )
        last = np.partition(distance, self.count - 1, axis=1)[:, self.count - 1]
        kept = distance <= last[:, None] + _TILE * np.sqrt(2.0) + 1e-9
        tile, landmark = np.nonzero(kept)
        counts = kept.sum(axis=1)
        place = np.arange(len(tile)) - np.repeat(np.cumsum(counts) - counts, counts)
        candidates = np.full((2, len(kept), int(counts.max())), _FAR)
        candidates[:, tile, place] = self.positions[landmark].T
        return candidates[0], candidates[1]

    def __call__(self, points: Floats) -> npt.NDArray[np.float64]:
        """Return the sorted distances.

        Args:
            points: (..., 2) in map units. Points off the map use the nearest tile's candidates,
                which is exact only on the map.

        Returns:
            float64 (..., count), ascending.
        """
        flat = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        result = np.empty((len(flat), self.count))
        for start in range(0, len(flat), _CHUNK):
            part = slice(start, start + _CHUNK)
            result[part] = self._nearest(flat[part])
        return result.reshape(*np.shape(points)[:-1], self.count)

    def _nearest(self, points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        column = np.clip((points[:, 0] / _TILE).astype(np.int64), 0, self._columns - 1)
        row = np.clip((points[:, 1] / _TILE).astype(np.int64), 0, self._rows - 1)
        tile = row * self._columns + column
        dx = self._x[tile] - points[:, :1]
        dy = self._y[tile] - points[:, 1:]
        squared = dx * dx
        squared += dy * dy
        squared.sort(axis=1)
        nearest: npt.NDArray[np.float64] = np.sqrt(squared[:, : self.count])
        return nearest
