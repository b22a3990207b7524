"""The exact posterior of the robot's position: the error that no learner can beat by much.

The moves are observed exactly, so only the start, two numbers, is unknown. Given a start s, the
position at t is s plus the moves so far, and the likelihood is a product of

- a box for every distance: |reading - true distance| <= observation noise;
- the path: every position lies in a free cell;
- the turns: where the heading changed, the straight move must have been blocked (with the
  probability that its random length ends in an obstacle), and new headings were drawn until a
  move was free (one over the probability of that). Where it didn't change, the density of the
  move is the same for all starts.

The possible starts are covered by square cells. A constraint is "violation(position) <= 0" with
a 1-Lipschitz violation, so a cell whose centre violates it by more than the cell's half diagonal
holds no possible start and is dropped: the true start is never lost. Cells whose centre fulfils
everything stand for the posterior, weighted by their area and the turns. When too few are left,
all cells of the trajectory are split in four. A part needn't be checked again against constraints
that the whole was far from violating (the violation moves by less than the centre does).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.maze.cells import (
    DIAGONAL,
    ROUNDING,
    Array,
    Cells,
    draw,
    effective_cells,
    summarise,
)
from pfrnn.study.data.maze.landmarks import NearestLandmarks
from pfrnn.study.data.maze.maps import Maze
from pfrnn.study.data.maze.simulator import Trajectories, World
from pfrnn.study.data.maze.walls import Walls

Index = npt.NDArray[np.int64]

_FIRST_HALF = 0.05  # Half side of the first cells, map units; divides the map's cells evenly.
_LAST_HALF = 2e-6
# Constraints are checked again in this order of blocks: a few, spread over time, drop most cells.
_BLOCKS = 3


class Posterior(NamedTuple):
    """Posterior of the position after each step.

    Attributes:
        mean: (N, T, 2), map units: the best answer in squared error.
        variance: (N, T), mean over x and y of the posterior variance: the expected squared error
            of ``mean``, and a less noisy estimate of the floor than the error itself.
        cells: (N, T), effective number of cells behind them.
        samples: (N, T, S, 2), positions drawn from the posterior.
    """

    mean: Array
    variance: Array
    cells: Array
    samples: Array


class Evidence(NamedTuple):
    """What an observer knows of n trajectories.

    Attributes:
        offset: (n, T + 1, 2), position at t less the start.
        reading: (n, T, nearest).
        turned: (n, T), whether the heading changed before the move made after t.
        heading: (n, T), degrees, before that change.
    """

    offset: Array
    reading: Array
    turned: npt.NDArray[np.bool_]
    heading: Array


def evidence_of(trajectories: Trajectories) -> Evidence:
    """Gather what the observer knows; positions and headings are not looked at."""
    action = trajectories.action
    offset = np.zeros((action.shape[0], action.shape[1] + 1, 2))
    np.cumsum(action[..., :2], axis=1, out=offset[:, 1:])
    after = np.rad2deg(np.arctan2(action[..., 0], action[..., 1]))
    change = action[..., 2]
    return Evidence(offset, trajectories.observation, change != 0.0, after - change)


class ExactFilter:
    """Computes posteriors on one map.

    Args:
        maze: the map.
        world: the rules; the action must be the realised move.
        turns: whether the turns are evidence. They can be only without direction noise (the
            heading is then known from the moves).
        cells: least effective number of cells that stand for a posterior.
        chunk: trajectories treated together.

    Raises:
        DataError: the world hides the moves, or turns are asked for with direction noise.
    """

    def __init__(
        self, maze: Maze, world: World, turns: bool = True, cells: int = 24, chunk: int = 32
    ) -> None:
        if world.action != "realised":
            raise DataError(
                "exact posterior: expected a world with realised actions, got commands; "
                "where moves are hidden, the start isn't the only unknown"
            )
        if turns and world.direction_noise > 0:
            raise DataError(
                "exact posterior: expected no direction noise with turns as evidence, got "
                f"{world.direction_noise} degrees; pass turns=False"
            )
        self._world, self._turns, self._least, self._chunk = world, turns, cells, chunk
        self._size = np.array([maze.width, maze.height], dtype=np.float64)
        self._sensor = NearestLandmarks(maze, world.nearest, world.unique_landmarks)
        self._walls = Walls(maze, world)
        per_side = round(0.5 / _FIRST_HALF)
        inner = (np.arange(per_side) + 0.5) / per_side
        grid = np.stack(np.meshgrid(inner, inner), axis=-1).reshape(1, -1, 2)
        self._starts = (maze.free_cells()[:, None, :] + grid).reshape(-1, 2)
        self._distances = self._sensor(self._starts).astype(np.float32)

    def __call__(
        self, trajectories: Trajectories, next_action: bool = False, samples: int = 0, seed: int = 0
    ) -> Posterior:
        """Compute the posterior after every step, given the inputs up to it.

        Args:
            trajectories: N trajectories.
            next_action: whether the input of step t holds the move made after t (authors_code)
                rather than the one before (paper).
            samples: positions to draw from each posterior.
            seed: of these draws.
        """
        generator = np.random.default_rng(seed)
        parts = []
        for first in range(0, len(trajectories.action), self._chunk):
            part = Trajectories(*(a[first : first + self._chunk] for a in trajectories))
            parts.append(self._run(evidence_of(part), next_action, samples, generator))
        return Posterior(*(np.concatenate(field) for field in zip(*parts, strict=True)))

    def _run(
        self, evidence: Evidence, next_action: bool, samples: int, generator: np.random.Generator
    ) -> Posterior:
        count, steps = evidence.turned.shape
        half = np.full(count, _FIRST_HALF)
        shapes = ((count, steps, 2), (count, steps), (count, steps), (count, steps, samples, 2))
        result = Posterior(*(np.empty(shape) for shape in shapes))
        cells = self._first(evidence)
        seen = 1
        for t in range(steps):
            while seen < 2 * t + 1 + next_action:
                cells = self._check(cells, half, evidence, seen)
                seen += 1
            cells = self._refine(cells, half, evidence, seen)
            offset = evidence.offset[:, t]
            mean, variance, effective = summarise(cells, offset)
            result.mean[:, t], result.variance[:, t] = mean, variance
            result.cells[:, t] = effective
            if samples:
                result.samples[:, t] = draw(cells, half, offset, samples, generator)
        return result

    def _first(self, evidence: Evidence) -> Cells:
        """Cells that the first reading leaves."""
        count, steps = evidence.turned.shape
        owners, chosen, violations = [], [], []
        for n in range(count):
            reading = evidence.reading[n, 0].astype(np.float32)
            worst = np.abs(self._distances - reading).max(axis=1) - self._world.observation_noise
            kept = np.flatnonzero(worst <= _FIRST_HALF * DIAGONAL + ROUNDING)
            owners.append(np.full(len(kept), n))
            chosen.append(kept)
            violations.append(worst[kept])
        index, worst = np.concatenate(chosen), np.concatenate(violations)
        violation = np.full((len(index), 2 * steps), -np.inf, dtype=np.float32)
        violation[:, 0] = worst
        return Cells(
            np.concatenate(owners),
            self._starts[index],
            violation,
            violation[:, 0].copy(),
            np.ones(len(index)),
        )

    def _check(self, cells: Cells, half: Array, evidence: Evidence, column: int) -> Cells:
        """Apply one new constraint to all cells; drop those that it excludes."""
        columns = np.full(len(cells.owner), column)
        violation = self._violations(cells.owner, cells.centre, columns, evidence)
        cells.violation[:, column] = violation
        np.maximum(cells.worst, cells.violation[:, column], out=cells.worst)
        kept = violation <= half[cells.owner] * DIAGONAL + ROUNDING
        if column % 2:
            before = (column - 1) // 2
            kept &= self._turn(cells, half, evidence, slice(before, before + 1))
        return cells if kept.all() else cells.take(kept)

    def _violations(self, owner: Index, centre: Array, column: Index, evidence: Evidence) -> Array:
        """Violations (P,) of constraint ``column[p]`` at a start ``centre[p]`` of ``owner[p]``."""
        point = centre + evidence.offset[owner, (column + 1) // 2]
        result = np.empty(len(owner))
        path = column % 2 == 1
        result[path] = self._walls.depth(point[path])
        read = np.flatnonzero(~path)
        # On the map the sensor is exact; moving a point onto it never moves it away from a
        # position on the map.
        distance = self._sensor(np.clip(point[read], 0.0, self._size))
        error = np.abs(distance - evidence.reading[owner[read], column[read] // 2])
        result[read] = error.max(axis=1) - self._world.observation_noise
        return result

    def _turn(
        self, cells: Cells, half: Array, evidence: Evidence, moves: slice
    ) -> npt.NDArray[np.bool_]:
        """Multiply the weights by the turns at ``moves``; return which cells stay possible."""
        possible = np.ones(len(cells.owner), dtype=np.bool_)
        if not self._turns:
            return possible
        row, move = np.nonzero(evidence.turned[cells.owner, moves])
        move += moves.start
        owner = cells.owner[row]
        point = cells.centre[row] + evidence.offset[owner, move]
        heading = evidence.heading[owner, move]
        share = self._walls.blocked_share(point, heading) / self._walls.free_share(point)
        np.multiply.at(cells.weight, row, share)
        out = self._walls.clearance(point, heading) > half[owner] * DIAGONAL
        possible[row[out]] = False
        return possible

    def _refine(self, cells: Cells, half: Array, evidence: Evidence, seen: int) -> Cells:
        """Split the cells of trajectories that too few cells stand for."""
        while True:
            few = effective_cells(cells, len(half)) < self._least
            few &= half > _LAST_HALF
            if not few.any():
                return cells
            chosen = few[cells.owner]
            half[few] /= 2
            parts = self._split(cells.take(chosen), half, evidence, seen)
            cells = cells.take(~chosen).joined(parts)

    def _split(self, cells: Cells, half: Array, evidence: Evidence, seen: int) -> Cells:
        """Split cells in four and apply the ``seen`` constraints again where they may bite."""
        parts = cells.quartered(half, seen)
        for block in range(_BLOCKS):
            columns = np.arange(seen)[_block(seen) == block]
            row, place = np.nonzero(parts.violation[:, columns] > 0)
            column = columns[place]
            found = self._violations(parts.owner[row], parts.centre[row], column, evidence)
            parts.violation[row, column] = found
            worst = parts.violation[:, :seen].max(axis=1, initial=-np.inf)
            if block == _BLOCKS - 1:
                parts.worst[:] = worst
            kept = np.ones(len(parts.owner), dtype=np.bool_)
            kept[row[found > half[parts.owner[row]] * DIAGONAL + ROUNDING]] = False
            parts = parts.take(kept)
        return parts.take(self._turn(parts, half, evidence, slice(0, seen // 2)))


def _block(seen: int) -> Index:
    """Assign constraints to blocks: every 16th to the first, every 4th to the second, the rest."""
    number = np.arange(seen)[::-1]
    return np.where(number % 16 == 0, 0, np.where(number % 4 == 0, 1, 2))
