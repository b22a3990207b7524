"""A particle filter on the true model, for worlds where the moves are hidden.

When the action is the command, the move itself is uncertain and the posterior has no closed form:
a bootstrap filter that knows the map and the rules is the reference there. It is approximate: with
more particles its error falls towards the floor. Where the moves are observed, use
``pfrnn.study.data.maze.posterior`` instead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pfrnn.errors import DataError
from pfrnn.study.data.maze.landmarks import NearestLandmarks
from pfrnn.study.data.maze.maps import Maze, is_free
from pfrnn.study.data.maze.simulator import Trajectories, World, direction, draw_start
from pfrnn.study.data.maze.walls import Walls

Array = npt.NDArray[np.float64]

# First particles for every one that is kept: the first reading leaves about one start in fifty.
_FIRST = 100


class ParticleFilter:
    """Bootstrap filter of the position, given commands and readings.

    Args:
        maze: the map.
        world: the rules, with ``action="command"``.
        particles: number of particles a trajectory.

    Raises:
        DataError: the world shows the moves.
    """

    def __init__(self, maze: Maze, world: World, particles: int = 1_000) -> None:
        if world.action != "command":
            raise DataError(
                "particle filter: expected a world whose actions are commands, got realised moves; "
                "use ExactFilter there"
            )
        self._maze, self._world, self._count = maze, world, particles
        self._sensor = NearestLandmarks(maze, world.nearest, world.unique_landmarks)
        self._walls = Walls(maze, world)
        self._occupied = maze.occupied

    def __call__(self, trajectories: Trajectories, seed: int) -> Array:
        """Return the filter's mean position after each step: (N, T, 2), map units.

        Args:
            trajectories: N trajectories; positions and headings are not looked at.
            seed: of the particles.
        """
        generator = np.random.default_rng(seed)
        runs = zip(trajectories.action, trajectories.observation, strict=True)
        return np.stack([self._run(action, reading, generator) for action, reading in runs])

    def _run(self, action: Array, reading: Array, generator: np.random.Generator) -> Array:
        here, _ = draw_start(self._maze, self._count * _FIRST, generator)
        means = np.empty((len(action), 2))
        for t in range(len(action)):
            if t > 0:
                here, weight = self._move(here, action[t - 1], generator)
            else:
                weight = np.ones(len(here))
            excess = np.abs(self._sensor(here) - reading[t]).max(axis=1)
            excess -= self._world.observation_noise
            inside = weight * (excess <= 0)
            if not inside.any():
                # No particle explains the reading: the nearest ones stand in for the lost truth.
                inside = np.exp(-np.square((excess - excess.min()) / 0.02))
            inside /= inside.sum()
            means[t] = inside @ here
            here = here[_systematic(inside, self._count, generator)]
        return means

    def _move(
        self, here: Array, action: Array, generator: np.random.Generator
    ) -> tuple[Array, Array]:
        """Move particles by a command; weigh them by how likely they made it so.

        The weight is the density of the command: 1 where the heading stayed (a move that would
        not be free is impossible), else the share of blocked straight moves over that of free
        random ones.
        """
        world = self._world
        after = float(np.rad2deg(np.arctan2(action[0], action[1])))
        weight = np.ones(len(here))
        if action[2] != 0.0:
            before = after - action[2] + self._bend(len(here), generator)
            weight = self._walls.blocked_share(here, before) / self._walls.free_share(here)
        length = world.step_length + generator.uniform(
            -world.step_noise, world.step_noise, len(here)
        )
        heading = after + self._bend(len(here), generator)
        there = here + length[:, None] * direction(heading)
        return there, weight * is_free(self._occupied, there)

    def _bend(self, count: int, generator: np.random.Generator) -> Array:
        noise = self._world.direction_noise
        return generator.uniform(-noise, noise, count)


def _systematic(weight: Array, count: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Systematic resampling: each particle as often as its weight says, rounded up or down."""
    targets = (generator.random() + np.arange(count)) / count
    index = np.searchsorted(np.cumsum(weight), targets, side="right")
    return np.minimum(index, int(np.flatnonzero(weight)[-1]))
