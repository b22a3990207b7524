"""Geometry of walls: signed distance, blocked moves, free headings, against combs of points."""

import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.data.maze.simulator import World, draw_start
from pfrnn.study.data.maze.walls import Walls

MAZE = load_maze("maze10")
WALLS = Walls(MAZE, World())


def test_depth_is_the_signed_distance():
    """Against the distance to a fine comb of points on the other side, 0.05 apart."""
    points = np.random.default_rng(0).random((200, 2)) * 10
    comb = np.stack(np.meshgrid(*[np.arange(-1, 11, 0.05) + 0.001] * 2), axis=-1).reshape(-1, 2)
    comb_free = MAZE.is_free(comb)
    depth = WALLS.depth(points)
    for point, found in zip(points, depth, strict=True):
        is_free = MAZE.is_free(point)
        other = comb[comb_free != is_free]
        distance = min(1.0, np.sqrt(np.square(other - point).sum(axis=1).min()))
        assert (found < 0) == is_free
        assert abs(found) == pytest.approx(distance, abs=0.075)
        assert abs(found) <= distance + 1e-9


def test_depth_is_lipschitz():
    generator = np.random.default_rng(1)
    points = generator.random((5_000, 2)) * 10.4 - 0.2
    step = generator.normal(size=points.shape) * 0.05
    change = np.abs(WALLS.depth(points + step) - WALLS.depth(points))
    assert (change <= np.hypot(*step.T) + 1e-12).all()


def test_blocked_share_equals_a_fine_comb():
    generator = np.random.default_rng(2)
    points, heading = draw_start(MAZE, 1_500, generator)
    heading[:4] = [0, 90, 180, 270]
    lengths = 0.18 + 0.04 * (np.arange(1_000) + 0.5) / 1_000
    angle = np.deg2rad(heading)[:, None]
    x, y = points[:, :1] + lengths * np.sin(angle), points[:, 1:] + lengths * np.cos(angle)
    comb = 1 - MAZE.is_free(np.stack([x, y], axis=-1)).mean(axis=1)
    share = WALLS.blocked_share(points, heading)
    np.testing.assert_allclose(share, comb, atol=2e-3)
    assert ((share > 0) & (share < 1)).sum() > 10
    impossible = WALLS.clearance(points, heading) > 0
    assert not share[impossible].any()
    assert impossible.mean() > 0.5


def test_free_share_is_how_often_a_random_move_is_free():
    """A table: it may be off by the change within a step of its grid (1/80)."""
    points, _ = draw_start(MAZE, 500, np.random.default_rng(3))
    generator = np.random.default_rng(4)
    angle = generator.uniform(0, 2 * np.pi, (500, 4_000))
    length = generator.uniform(0.18, 0.22, angle.shape)
    ends = points[:, None] + length[..., None] * np.stack([np.sin(angle), np.cos(angle)], -1)
    share = WALLS.free_share(points)
    gap = share - MAZE.is_free(ends).mean(axis=1)
    assert np.abs(gap).max() < 0.05
    assert np.abs(gap.mean()) < 0.002
    assert share.min() < 0.75


def test_moves_longer_than_a_cell_are_refused():
    with pytest.raises(DataError, match="shorter than a cell"):
        Walls(MAZE, World(step_length=1.0))
