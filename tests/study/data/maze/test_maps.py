"""The maps: both mirrors, connectivity, half of the obstacles with landmarks, 4-fold ambiguity."""

import numpy as np
import pytest

from pfrnn.study.data.maze import maps
from pfrnn.study.data.maze.design import DESIGNS, connected, design_maze
from pfrnn.study.data.maze.landmarks import NearestLandmarks
from pfrnn.study.data.maze.maps import MAPS, load_maze, parse_maze
from pfrnn.study.data.maze.simulator import draw_start

NAMES = tuple(MAPS)


@pytest.mark.parametrize("name", NAMES)
def test_size_is_in_the_name(name):
    maze = load_maze(name)
    assert maze.grid.shape == (int(name[4:]),) * 2
    assert (maze.width, maze.height) == maze.grid.shape


@pytest.mark.parametrize("name", NAMES)
def test_both_mirrors_leave_the_map_as_it_is_and_a_quarter_turn_does_not(name):
    grid = load_maze(name).grid
    np.testing.assert_array_equal(grid, grid[::-1])
    np.testing.assert_array_equal(grid, grid[:, ::-1])
    assert (grid != grid.T).any()


@pytest.mark.parametrize("name", NAMES)
def test_corridors_are_everywhere_connected(name):
    """A flood fill written for this test reaches every free cell."""
    grid = load_maze(name).grid
    free = {tuple(cell) for cell in np.argwhere(grid == 0)}
    waiting, reached = [min(free)], set()
    while waiting:
        row, column = cell = waiting.pop()
        if cell in free and cell not in reached:
            reached.add(cell)
            waiting += [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
    assert reached == free
    assert connected(grid == 0)


def test_connected_sees_a_cut():
    assert not connected(parse_maze("cut", "010\n010\n010").grid == 0)
    assert not connected(parse_maze("corner", "01\n10").grid == 0)


@pytest.mark.parametrize("name", NAMES)
def test_half_of_the_obstacles_have_landmarks_and_free_area_is_comparable(name):
    grid = load_maze(name).grid
    assert (grid == 2).sum() * 2 == (grid > 0).sum()
    assert (grid == 0).mean() == pytest.approx(0.68, abs=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_distances_to_landmarks_are_comparable(name):
    maze = load_maze(name)
    points, _ = draw_start(maze, 2_000, np.random.default_rng(0))
    assert 0.85 < NearestLandmarks(maze, 5)(points)[:, 0].mean() < 1.15


@pytest.mark.parametrize("name", NAMES)
def test_the_four_mirrored_poses_read_the_same_distances(name):
    maze = load_maze(name)
    sensor = NearestLandmarks(maze, 5)
    points, _ = draw_start(maze, 500, np.random.default_rng(1))
    size = np.array([maze.width, maze.height])
    for flip in ([True, False], [False, True], [True, True]):
        image = np.where(flip, size - points, points)
        assert maze.is_free(image).all()
        np.testing.assert_allclose(sensor(image), sensor(points), rtol=0, atol=1e-9)
    # Not so for a shifted or a transposed pose: the ambiguity is the mirrors'.
    assert np.abs(sensor(points[:, ::-1]) - sensor(points)).mean() > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_the_fast_sensor_agrees_with_a_full_search(name):
    maze = load_maze(name)
    sensor = NearestLandmarks(maze, 5)
    generator = np.random.default_rng(2)
    points = generator.random((3_000, 2)) * maze.width
    points[:9] = [[x, y] for x in (0, 3.25, maze.width) for y in (0, 7.5, maze.width)]
    full = np.sqrt(np.square(points[:, None] - sensor.positions).sum(-1))
    np.testing.assert_allclose(sensor(points), np.sort(full, axis=1)[:, :5], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", tuple(DESIGNS))
def test_the_design_can_be_drawn_again(name):
    size, seed = DESIGNS[name]
    np.testing.assert_array_equal(design_maze(name, size, seed).grid, load_maze(name).grid)


def test_a_changed_map_file_is_refused(monkeypatch):
    monkeypatch.setitem(maps.MAPS, "maze10", "0" * 64)
    with pytest.raises(maps.DataError, match="SHA-256"):
        load_maze("maze10")


def test_row_0_stands_on_top():
    maze = parse_maze("tiny", "012\n000\n")
    assert maze.is_free(np.array([0.5, 1.5]))
    assert not maze.is_free(np.array([1.5, 1.5]))
    assert maze.is_free(np.array([2.5, 0.5]))
    assert not maze.is_free(np.array([[-0.1, 0.5], [3.1, 0.5], [0.5, 2.1], [0.5, -9.0]])).any()
    assert maze.free_cells().tolist() == [[0, 1], [0, 0], [1, 0], [2, 0]]
