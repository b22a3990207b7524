"""The robot's world: invariants, distances, seeds, and distributions with mutants that fail."""

import time

import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.maze.landmarks import NearestLandmarks
from pfrnn.study.data.maze.maps import load_maze, parse_maze
from pfrnn.study.data.maze.simulator import World, simulate, wrap_degrees

MAZE = load_maze("maze10")


@pytest.fixture(scope="module")
def walk():
    return simulate(MAZE, World(), 300, 60, seed=1)


def test_the_robot_is_always_on_a_free_cell(walk):
    for x, y in walk.position.reshape(-1, 2):
        assert 0 <= x < 10
        assert 0 <= y < 10
        assert MAZE.grid[9 - int(y), int(x)] == 0


def test_moves_have_the_stated_length_and_lead_to_the_next_position(walk):
    move = walk.action[..., :2]
    length = np.hypot(move[..., 0], move[..., 1])
    assert length.min() >= 0.18 - 1e-12
    assert length.max() <= 0.22 + 1e-12
    np.testing.assert_allclose(walk.position[:, 1:], walk.position[:, :-1] + move[:, :-1])


def test_a_move_goes_along_the_new_heading_and_the_heading_changes_only_at_walls(walk):
    turned = walk.heading + walk.action[..., 2]
    angle = np.rad2deg(np.arctan2(walk.action[..., 0], walk.action[..., 1]))
    np.testing.assert_allclose(wrap_degrees(angle - turned), 0, atol=1e-9)
    np.testing.assert_allclose(wrap_degrees(walk.heading[:, 1:] - turned[:, :-1]), 0, atol=1e-9)
    # Where it turned, going straight on by the longest move would have left the free cells.
    n, t = np.nonzero(walk.action[..., 2])
    ahead = np.deg2rad(walk.heading[n, t])[:, None]
    lengths = np.linspace(0.18, 0.22, 41)
    x = walk.position[n, t, 0, None] + lengths * np.sin(ahead)
    y = walk.position[n, t, 1, None] + lengths * np.cos(ahead)
    blocked = ~MAZE.is_free(np.stack([x, y], axis=-1)).all(axis=1)
    # A blocked stretch shorter than the comb's spacing of 0.001 can slip through.
    assert blocked.mean() > 0.97
    assert len(n) > 500


def test_distances_equal_a_plain_loop(walk):
    corners = []
    for row in range(10):
        for column in range(10):
            if MAZE.grid[row, column] == 2:
                for dx in (0, 1):
                    for dy in (0, 1):
                        corners.append((column + dx, 9 - row + dy))
    assert len(corners) == 64
    assert len(set(corners)) == 48
    sensor = NearestLandmarks(MAZE, 5)
    for x, y in walk.position[:20, ::7].reshape(-1, 2):
        expected = sorted(np.hypot(x - a, y - b) for a, b in corners)[:5]
        np.testing.assert_allclose(sensor(np.array([x, y])), expected, rtol=0, atol=1e-12)


def test_unique_landmarks_are_another_task():
    # With duplicates kept the five readings hold about 4.07 distinct distances, else five.
    kept, unique = NearestLandmarks(MAZE, 5), NearestLandmarks(MAZE, 5, unique=True)
    assert len(kept.positions) == 64
    assert len(unique.positions) == 48
    points = starts(2_000)[0]
    distinct = [len(set(row)) for row in kept(points).round(9)]
    assert np.mean(distinct) == pytest.approx(4.07, abs=0.1)
    assert {len(set(row)) for row in unique(points).round(9)} == {5}


def test_observation_noise_is_bounded_and_fills_its_range(walk):
    noise = walk.observation - NearestLandmarks(MAZE, 5)(walk.position)
    assert np.abs(noise).max() <= 0.1
    assert kolmogorov(noise, -0.1, 0.1) < critical(noise.size)


def test_same_seed_same_walk_and_another_seed_another():
    one, same = (simulate(MAZE, World(), 5, 9, seed=3) for _ in range(2))
    other = simulate(MAZE, World(), 5, 9, seed=4)
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(one, other, strict=True):
        assert (a != b).mean() > 0.5 or a is one.action
    assert (one.action[..., :2] != other.action[..., :2]).all()


def test_observation_noise_does_not_change_the_paths():
    quiet = simulate(MAZE, World(observation_noise=0.0), 5, 9, seed=3)
    noisy = simulate(MAZE, World(), 5, 9, seed=3)
    np.testing.assert_array_equal(quiet.position, noisy.position)
    assert (quiet.observation != noisy.observation).all()


def test_a_command_hides_the_noise_of_the_move():
    walk = simulate(MAZE, World(action="command", direction_noise=3.0), 50, 30, seed=2)
    length = np.hypot(walk.action[..., 0], walk.action[..., 1])
    np.testing.assert_allclose(length, 0.2)
    made = np.diff(walk.position, axis=1)
    gap = np.hypot(*np.moveaxis(made - walk.action[:, :-1, :2], -1, 0))
    assert 0.01 < gap.mean() < 0.0205


def test_direction_noise_bends_the_move_but_not_the_heading():
    walk = simulate(MAZE, World(direction_noise=3.0), 200, 30, seed=2)
    angle = np.rad2deg(np.arctan2(walk.action[..., 0], walk.action[..., 1]))
    off = wrap_degrees(angle - walk.heading - walk.action[..., 2])
    assert 2.9 < np.abs(off).max() <= 3.0 + 1e-9
    straight = walk.action[..., 2] == 0
    assert straight.mean() > 0.7


def kolmogorov(sample, low, high):
    """Largest distance between the sample's distribution and the uniform one."""
    ordered = np.sort(np.ravel(sample))
    uniform = (ordered - low) / (high - low)
    rank = np.arange(1, len(ordered) + 1) / len(ordered)
    return max(np.abs(rank - uniform).max(), np.abs(rank - 1 / len(ordered) - uniform).max())


def critical(count):
    """Kolmogorov distance exceeded with probability 1e-6: 2 exp(-2 n d^2) = 1e-6."""
    return np.sqrt(np.log(2e6) / (2 * count))


def starts(count=20_000, seed=5):
    walk = simulate(MAZE, World(), count, 1, seed)
    return walk.position[:, 0], walk.heading[:, 0]


def chi_square_of_cells(points):
    """(Chi-square - degrees of freedom) / its standard deviation, over the free cells."""
    cells = MAZE.free_cells()
    index = {tuple(cell): number for number, cell in enumerate(cells)}
    where = [index[tuple(np.floor(point).astype(int))] for point in points]
    counts = np.bincount(where, minlength=len(cells))
    expected = len(points) / len(cells)
    freedom = len(cells) - 1
    return (np.square(counts - expected).sum() / expected - freedom) / np.sqrt(2 * freedom)


def test_starts_are_uniform_on_the_free_cells():
    # False alarm 1e-6: the chi-square's upper 1e-6 point at 67 degrees of freedom is 132.6, that
    # is 5.67 of its standard deviations; the Kolmogorov bounds are at 1e-6 each.
    position, heading = starts()
    assert chi_square_of_cells(position) < 5.67
    assert kolmogorov(heading, 0, 360) < critical(len(heading))
    assert kolmogorov(position % 1.0, 0, 1) < critical(position.size)


def test_the_uniformity_test_catches_a_robot_that_has_walked():
    # Mutant: positions after some moves are not uniform.
    walk = simulate(MAZE, World(), 20_000, 40, seed=5)
    assert chi_square_of_cells(walk.position[:, -1]) > 5.67


def test_step_lengths_are_uniform_away_from_walls_and_a_gaussian_is_not():
    walk = simulate(MAZE, World(), 4_000, 1, seed=6)
    middle = np.abs(walk.position[:, 0] % 1.0 - 0.5).max(axis=1) < 0.28
    length = np.hypot(walk.action[middle, 0, 0], walk.action[middle, 0, 1])
    assert len(length) > 1000
    assert kolmogorov(length, 0.18, 0.22) < critical(len(length))
    # Mutant: a normal draw of the same standard deviation.
    mutant = np.random.default_rng(0).normal(0.2, 0.02 / np.sqrt(3), len(length))
    assert kolmogorov(mutant.clip(0.18, 0.22), 0.18, 0.22) > critical(len(length))


@pytest.mark.parametrize(
    ("text", "message"),
    [("00\n000", "line 2"), ("03\n00", "'3'"), ("12\n21", "at least one free cell")],
)
def test_a_faulty_map_says_what_is_wrong(text, message):
    with pytest.raises(DataError, match=message):
        parse_maze("faulty", text)


def test_an_unknown_map_names_the_known_ones():
    with pytest.raises(DataError, match="maze10"):
        load_maze("maze11")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maze10", "maze18", "maze27"])
def test_thirteen_thousand_trajectories_take_less_than_a_minute_of_one_core(name):
    maze = load_maze(name)
    start = time.process_time()
    simulate(maze, World(), 13_000, 100, seed=1)
    assert time.process_time() - start < 60
