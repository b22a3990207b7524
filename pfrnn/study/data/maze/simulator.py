"""The robot in the maze: many trajectories at once, from one seed.

The robot starts uniformly on the free cells with a uniform heading. A move of length
``step_length + U(-step_noise, step_noise)`` goes along the heading; where it would not end in a
free cell, the robot draws a new heading (and a new length) and tries again (paper, experiments
section, "Localization"). Only the end of a move has to be free: a move may cut an obstacle's
corner. An observation is the sorted distances to the nearest landmarks, through walls and without
identity, each plus its own U(-observation_noise, observation_noise); the noise comes after
sorting, so a reading may be slightly out of order.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pfrnn.study.data.maze.landmarks import NearestLandmarks
from pfrnn.study.data.maze.maps import Maze, is_free

Array = npt.NDArray[np.float64]


class World(NamedTuple):
    """The rules of the world.

    Attributes:
        step_length: mean length of a move, map units.
        step_noise: half width of the uniform noise on the length, map units.
        direction_noise: half width of the uniform noise on a move's direction, degrees; the
            heading itself stays as it is.
        observation_noise: half width of the uniform noise on each distance, map units.
        nearest: number of distances in an observation.
        unique_landmarks: drop duplicated landmark corners.
        action: ``realised``: the action is the move made, free of noise; ``command``: it is the
            move intended (mean length along the heading), and only the robot's world knows the
            noise.
    """

    step_length: float = 0.2
    step_noise: float = 0.02
    direction_noise: float = 0.0
    observation_noise: float = 0.1
    nearest: int = 5
    unique_landmarks: bool = False
    action: Literal["realised", "command"] = "realised"


class Trajectories(NamedTuple):
    """N trajectories of T steps.

    Attributes:
        position: (N, T, 2), x and y before move t, map units.
        heading: (N, T), before move t, degrees in [0, 360).
        action: (N, T, 3), of the move made after t: dx, dy (map units, map axes) and the change of
            heading that preceded it (degrees in [-180, 180)).
        observation: (N, T, nearest), at ``position``.
    """

    position: Array
    heading: Array
    action: Array
    observation: Array


def simulate(maze: Maze, world: World, trajectories: int, steps: int, seed: int) -> Trajectories:
    """Simulate independent trajectories.

    Args:
        maze: the map.
        world: the rules.
        trajectories: N.
        steps: T.
        seed: a non-negative integer.

    Randomness: one stream for the motion, one for the observations, both from ``seed``; the
        observation noise therefore never changes the paths.
    """
    motion, sensing = np.random.default_rng(seed).spawn(2)
    occupied = maze.occupied
    here, heading = draw_start(maze, trajectories, motion)
    position = np.empty((trajectories, steps, 2))
    headings = np.empty((trajectories, steps))
    action = np.empty((trajectories, steps, 3))
    for t in range(steps):
        position[:, t], headings[:, t] = here, heading
        there, turned = _move(occupied, world, here, heading, motion)
        moved = there - here
        if world.action == "command":
            moved = world.step_length * direction(turned)
        action[:, t, :2] = moved
        action[:, t, 2] = wrap_degrees(turned - heading)
        here, heading = there, turned
    sensor = NearestLandmarks(maze, world.nearest, world.unique_landmarks)
    exact = sensor(position)
    noise = sensing.uniform(-world.observation_noise, world.observation_noise, exact.shape)
    return Trajectories(position, headings, action, exact + noise)


def draw_start(maze: Maze, count: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Draw starts uniformly on the free cells, and headings uniformly: (count, 2) and (count,)."""
    cells = maze.free_cells()
    corner = cells[generator.integers(len(cells), size=count)]
    return corner + generator.random((count, 2)), generator.uniform(0.0, 360.0, count)


def direction(heading: Array) -> Array:
    """Unit vectors (..., 2) along compass headings in degrees."""
    angle = np.deg2rad(heading)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1)


def wrap_degrees(angle: Array) -> Array:
    """Wrap angles into [-180, 180)."""
    return (angle + 180.0) % 360.0 - 180.0


def _move(
    occupied: npt.NDArray[np.bool_],
    world: World,
    start: Array,
    heading: Array,
    generator: np.random.Generator,
) -> tuple[Array, Array]:
    """Move every robot once; return the new positions and headings."""
    end, turned = start.copy(), heading.copy()
    waiting = np.arange(len(start))
    while len(waiting):
        count = len(waiting)
        length = world.step_length + generator.uniform(-world.step_noise, world.step_noise, count)
        off = generator.uniform(-world.direction_noise, world.direction_noise, count)
        trial = start[waiting] + length[:, None] * direction(turned[waiting] + off)
        free = is_free(occupied, trial)
        end[waiting[free]] = trial[free]
        waiting = waiting[~free]
        turned[waiting] = generator.uniform(0.0, 360.0, len(waiting))
    return end, turned
