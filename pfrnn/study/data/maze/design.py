"""How the maps that the paper doesn't publish were designed: maze18 and maze27 are ours.

Walls are straight pieces two to four cells long, put down at random in one quarter of the map and
mirrored left-right and up-down, until as large a share of the map is free as in maze10. A piece is
refused if it would make a wall two cells thick, touch another wall at a corner only, or cut the
free cells in two. Half of the obstacles, whole pieces where possible, get landmarks. The text
files in ``maps`` are what is used; a test draws them again from ``DESIGNS``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.maze.maps import FREE, LANDMARK, OBSTACLE, Maze

# The share of free cells of maze10.
FREE_SHARE = 0.68
# (size, seed), chosen among the first two dozen seeds (some lead nowhere) by eye and because the
# mean distances to the nearest landmarks are like maze10's; before any model was trained.
DESIGNS = {"maze18": (18, 15), "maze27": (27, 9)}

Cells = tuple[tuple[int, int], ...]
_ATTEMPTS = 20_000
_PROPOSALS = 24


class _Draft(NamedTuple):
    """A map in the making: obstacles, and the pieces (orbits under both mirrors) they came in."""

    blocked: npt.NDArray[np.bool_]
    pieces: list[Cells]


def design_maze(name: str, size: int, seed: int) -> Maze:
    """Design a map of ``size`` x ``size`` cells.

    Raises:
        DataError: no map with the wanted share of free cells was found from this seed.
    """
    generator = np.random.default_rng(seed)
    wanted = 4 * round((1 - FREE_SHARE) * size * size / 4)
    draft = _Draft(np.zeros((size, size), dtype=np.bool_), [])
    for _ in range(_ATTEMPTS):
        missing = wanted - int(draft.blocked.sum())
        if missing == 0:
            return Maze(name, _with_landmarks(draft, wanted // 2, generator))
        piece = _best_piece(draft.blocked, missing, generator)
        if piece is not None:
            draft.pieces.append(piece)
            for row, column in piece:
                draft.blocked[row, column] = True
    raise DataError(f"design of {name}: seed {seed} leads nowhere; try another")


def _best_piece(
    blocked: npt.NDArray[np.bool_], missing: int, generator: np.random.Generator
) -> Cells | None:
    """Of random pieces that fit, the one in the emptiest place, or one that prolongs a wall."""
    fitting = []
    for _ in range(_PROPOSALS):
        piece = _random_piece(len(blocked), generator)
        if len(piece) <= missing and _fits(blocked, piece):
            fitting.append(piece)
    if not fitting:
        return None
    rows, columns = np.nonzero(blocked)

    def emptiness(piece: Cells) -> float:
        if not len(rows):
            return math.inf
        nearest = [np.hypot(rows - r, columns - c).min() for r, c in piece]
        return float(np.mean(nearest))

    touching = [piece for piece in fitting if _touches(blocked, piece)]
    if touching and generator.random() < 0.5:
        return max(touching, key=emptiness)
    return max(fitting, key=emptiness)


def _random_piece(size: int, generator: np.random.Generator) -> Cells:
    """A straight piece inside the upper left quarter, with its three mirror images."""
    quarter = (size + 1) // 2
    length = int(generator.integers(2, 5))
    along, across = int(generator.integers(quarter - length + 1)), int(generator.integers(quarter))
    vertical = generator.random() < 0.5
    orbit = set()
    for step in range(along, along + length):
        orbit |= mirrored((step, across) if vertical else (across, step), size)
    return tuple(sorted(orbit))


def mirrored(cell: tuple[int, int], size: int) -> set[tuple[int, int]]:
    """The cell and its images under both mirrors: four cells, fewer on an odd map's axes."""
    row, column = cell
    return {(r, c) for r in (row, size - 1 - row) for c in (column, size - 1 - column)}


def _touches(blocked: npt.NDArray[np.bool_], piece: Cells) -> bool:
    padded = np.pad(blocked, 1)
    return any(
        padded[row, column + 1]
        or padded[row + 2, column + 1]
        or padded[row + 1, column]
        or padded[row + 1, column + 2]
        for row, column in piece
    )


def _fits(blocked: npt.NDArray[np.bool_], piece: Cells) -> bool:
    rows, columns = np.array(piece).T
    if blocked[rows, columns].any():
        return False
    trial = blocked.copy()
    trial[rows, columns] = True
    a, b, c, d = trial[:-1, :-1], trial[:-1, 1:], trial[1:, :-1], trial[1:, 1:]
    thick = a & b & c & d
    corner = (a & d & ~b & ~c) | (b & c & ~a & ~d)
    return not thick.any() and not corner.any() and connected(~trial)


def connected(free: npt.NDArray[np.bool_]) -> bool:
    """Whether all free cells hang together through shared sides."""
    reached = np.zeros_like(free)
    start = np.argwhere(free)[0]
    reached[tuple(start)] = True
    while True:
        grown = reached.copy()
        grown[1:] |= reached[:-1]
        grown[:-1] |= reached[1:]
        grown[:, 1:] |= reached[:, :-1]
        grown[:, :-1] |= reached[:, 1:]
        grown &= free
        if (grown == reached).all():
            return bool((reached == free).all())
        reached = grown


def _with_landmarks(
    draft: _Draft, wanted: int, generator: np.random.Generator
) -> npt.NDArray[np.int8]:
    """Give landmarks to random pieces until ``wanted`` obstacles have one; the last is split."""
    grid = np.where(draft.blocked, OBSTACLE, FREE).astype(np.int8)
    for number in generator.permutation(len(draft.pieces)):
        for cell in draft.pieces[number]:
            missing = wanted - int((grid == LANDMARK).sum())
            fresh = [c for c in mirrored(cell, len(grid)) if grid[c] == OBSTACLE]
            if len(fresh) <= missing:
                for cell in fresh:
                    grid[cell] = LANDMARK
    return grid
