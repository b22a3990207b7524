"""The particle filter on the true model, for worlds that hide the moves."""

import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.data.maze.particles import ParticleFilter, _systematic
from pfrnn.study.data.maze.posterior import ExactFilter
from pfrnn.study.data.maze.scores import squared_errors
from pfrnn.study.data.maze.simulator import World, simulate

MAZE = load_maze("maze10")
WORLD = World(action="command", direction_noise=3.0)


@pytest.fixture(scope="module")
def walk():
    return simulate(MAZE, WORLD, 30, 20, seed=8)


@pytest.fixture(scope="module")
def answers(walk):
    return ParticleFilter(MAZE, WORLD, 500)(walk, seed=1)


def test_it_finds_most_robots_and_shuffled_readings_do_not(walk, answers):
    error = squared_errors(answers, walk.position)
    centre = squared_errors(np.array([5.0, 5.0]), walk.position)
    assert np.median(error[:, -1]) < 0.05
    assert error.mean() < 0.7 * centre.mean()
    shuffled = walk._replace(observation=np.roll(walk.observation, 1, axis=0))
    lost = squared_errors(ParticleFilter(MAZE, WORLD, 500)(shuffled, seed=1), walk.position)
    assert np.median(lost[:, -1]) > 0.5


def test_seeds_and_blindness(walk, answers):
    part = walk._replace(position=walk.position * np.nan, heading=walk.heading * np.nan)
    same = ParticleFilter(MAZE, WORLD, 500)(part, seed=1)
    np.testing.assert_array_equal(same, answers)
    assert (ParticleFilter(MAZE, WORLD, 500)(walk, seed=2) != answers).any()


def test_who_sees_the_moves_knows_more():
    """The same paths, moves shown or hidden: the exact posterior is better than the filter."""
    noisy = World(action="command", step_noise=0.1)
    hidden = simulate(MAZE, noisy, 40, 15, seed=9)
    shown_world = noisy._replace(action="realised")
    shown = simulate(MAZE, shown_world, 40, 15, seed=9)
    np.testing.assert_array_equal(hidden.position, shown.position)
    exact = ExactFilter(MAZE, shown_world)(shown).mean
    filtered = ParticleFilter(MAZE, noisy, 500)(hidden, seed=1)
    late = slice(8, None)
    better = squared_errors(exact, shown.position)[:, late]
    worse = squared_errors(filtered, shown.position)[:, late]
    assert np.median(better) < 0.1 * np.median(worse)


def test_it_refuses_a_world_that_shows_the_moves():
    with pytest.raises(DataError, match="ExactFilter"):
        ParticleFilter(MAZE, World())


def test_systematic_resampling_copies_each_particle_as_its_weight_says():
    generator = np.random.default_rng(0)
    weight = np.array([0.5, 0.0, 0.3, 0.2, 0.0])
    for _ in range(50):
        counts = np.bincount(_systematic(weight, 1_000, generator), minlength=5)
        assert (np.abs(counts - 1_000 * weight) <= 1).all()
        assert counts[[1, 4]].sum() == 0
