"""Mazes: text maps of square cells, the coordinates on them, and what is free.

Coordinates. A map of R rows and C columns covers x in [0, C) to the right and y in [0, R) upwards,
in map units (a cell is 1 x 1). Row 0 of the text stands on top: the cell in row r and column c
covers [c, c + 1) x [R - 1 - r, R - r). Headings are compass angles in degrees: 0 looks along +y,
90 along +x, so a move of length d is (d sin heading, d cos heading).
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError

FREE, OBSTACLE, LANDMARK = 0, 1, 2

# The text files belong to the results as code does, but a digest of the source sees modules only:
# so their digests stand here, and loading checks them.
MAPS = {
    "maze10": "ab2e07591155c1a9c14e607685353042566d755fc43a3e738b5ff4e57891d1a7",
    "maze18": "1e4869eec13377a49fe0c6caf490f669446ed3980c1253b9f0ec983c7fc2daea",
    "maze27": "1ee5809c4b0128fe0befd74b6dcd64c7b12bc6105864b2d14b862c9021fa5ec0",
}

Floats = npt.NDArray[np.floating[Any]]


class Maze(NamedTuple):
    """A map.

    Attributes:
        name: e.g. ``maze10``.
        grid: int8 (rows, columns), row 0 on top; 0 free, 1 obstacle, 2 obstacle whose four
            corners are landmarks.
    """

    name: str
    grid: npt.NDArray[np.int8]

    @property
    def width(self) -> int:
        """Extent in x: the number of columns."""
        return int(self.grid.shape[1])

    @property
    def height(self) -> int:
        """Extent in y: the number of rows."""
        return int(self.grid.shape[0])

    @property
    def occupied(self) -> npt.NDArray[np.bool_]:
        """Obstacles by (floor(y) + 1, floor(x) + 1), with a border of obstacles around the map."""
        return np.pad(self.grid[::-1] != FREE, 1, constant_values=True)

    def is_free(self, points: Floats) -> npt.NDArray[np.bool_]:
        """Whether points lie in a free cell of the map; everything outside is not free.

        Args:
            points: (..., 2), x and y in map units.

        Returns:
            bool (...).
        """
        return is_free(self.occupied, points)

    def free_cells(self) -> npt.NDArray[np.int64]:
        """Lower left corners (x, y) of the free cells: (F, 2), rows from the top."""
        rows, columns = np.nonzero(self.grid == FREE)
        return np.stack([columns, self.height - 1 - rows], axis=-1)


def is_free(occupied: npt.NDArray[np.bool_], points: Floats) -> npt.NDArray[np.bool_]:
    """Look points (..., 2) up in a bordered occupancy (``Maze.occupied``)."""
    rows, columns = occupied.shape
    x = np.floor(points[..., 0]).astype(np.int64) + 1
    y = np.floor(points[..., 1]).astype(np.int64) + 1
    flat = np.clip(y, 0, rows - 1) * columns + np.clip(x, 0, columns - 1)
    free: npt.NDArray[np.bool_] = ~occupied.ravel()[flat]
    return free


def parse_maze(name: str, text: str) -> Maze:
    r"""Read a map from text: one line a row, one digit a cell.

    Raises:
        DataError: the rows differ in length, a cell is not 0, 1 or 2, or nothing is free.

    Example:
        >>> parse_maze("tiny", "02\n10\n").grid.tolist()
        [[0, 2], [1, 0]]
    """
    lines = text.split()
    for number, line in enumerate(lines, start=1):
        if len(line) != len(lines[0]):
            raise DataError(
                f"map {name}, line {number}: expected {len(lines[0])} cells as in line 1, "
                f"got {len(line)}; make every row equally long"
            )
        wrong = sorted(set(line) - set("012"))
        if wrong:
            raise DataError(
                f"map {name}, line {number}: expected the digits 0, 1 and 2, got {wrong[0]!r}"
            )
    grid = np.array([[int(cell) for cell in line] for line in lines], dtype=np.int8)
    if not (grid == FREE).any():
        raise DataError(f"map {name}: expected at least one free cell (0), got none")
    return Maze(name, grid)


def load_maze(name: str) -> Maze:
    """Load a map of the package by name.

    Raises:
        DataError: no such map, or its file was changed.
    """
    if name not in MAPS:
        raise DataError(f"unknown map {name!r}; known maps: {', '.join(MAPS)}")
    raw = resources.files("pfrnn.study.data.maze").joinpath("maps", f"{name}.txt").read_bytes()
    text = raw.decode("ascii").replace("\r\n", "\n")
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != MAPS[name]:
        raise DataError(
            f"map {name}: expected the file's SHA-256 {MAPS[name][:12]}…, got {found[:12]}…; "
            "restore the file, or write the new digest into pfrnn/study/data/maze/maps.py"
        )
    return parse_maze(name, text)
