"""The exact posterior: against brute force, calibrated, covering the truth, below the centre."""

import numpy as np
import pytest

from pfrnn.errors import DataError
from pfrnn.study.data.maze.landmarks import NearestLandmarks
from pfrnn.study.data.maze.maps import load_maze, parse_maze
from pfrnn.study.data.maze.posterior import ExactFilter, evidence_of
from pfrnn.study.data.maze.scores import localization_scores, squared_errors
from pfrnn.study.data.maze.simulator import Trajectories, World, draw_start, simulate, wrap_degrees

MAZE = load_maze("maze10")
# The two-sided normal quantile of a false alarm of 1e-6.
Z = 4.9


@pytest.fixture(scope="module")
def walk():
    return simulate(MAZE, World(), 400, 12, seed=11)


@pytest.fixture(scope="module")
def posterior(walk):
    return ExactFilter(MAZE, World())(walk, samples=40, seed=1)


def brute_force(maze, walk, n, starts, turns, noise):
    """Likelihood of every start: readings by a full search, path, turns by combs."""
    corners = NearestLandmarks(maze, 5).positions
    lengths = 0.18 + 0.04 * (np.arange(40) + 0.5) / 40
    round_trip = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    place, weight = starts.copy(), np.ones(len(starts))
    index = np.arange(len(starts))
    for t in range(walk.observation.shape[1]):
        if t > 0:
            dx, dy, change = walk.action[n, t - 1]
            if change != 0 and turns:
                before = np.arctan2(dx, dy) - np.deg2rad(change)
                straight = np.stack([np.sin(before), np.cos(before)]) * lengths[:, None]
                weight = weight * (1 - maze.is_free(place[:, None] + straight).mean(axis=1))
                circle = 0.2 * np.stack([np.sin(round_trip), np.cos(round_trip)], axis=-1)
                weight = weight / maze.is_free(place[:, None] + circle).mean(axis=1)
            place = place + np.array([dx, dy])
            weight = weight * maze.is_free(place)
        distance = np.sqrt(np.square(place[:, None] - corners).sum(-1))
        error = np.abs(np.sort(distance, axis=1)[:, :5] - walk.observation[n, t]).max(axis=1)
        kept = (error <= noise) & (weight > 0)
        index, place, weight = index[kept], place[kept], weight[kept]
    return index, place, weight


@pytest.mark.parametrize("turns", [True, False])
def test_mean_and_variance_agree_with_brute_force(turns):
    """On a tiny map with coarse readings; trajectories that turn early."""
    maze, steps, noise = parse_maze("tiny", "0200\n0001\n1020\n"), 4, 0.4
    world = World(observation_noise=noise)
    walk = simulate(maze, world, 40, steps, seed=3)
    early = np.flatnonzero((walk.action[:, : steps - 1, 2] != 0).any(axis=1))[:4]
    result = ExactFilter(maze, world, turns=turns, cells=400)(walk)
    starts, _ = draw_start(maze, 200_000, np.random.default_rng(0))
    mutant = ExactFilter(maze, world, turns=not turns, cells=400)(walk)
    assert len(early) == 4
    differences = 0
    for n in early:
        _, place, weight = brute_force(maze, walk, n, starts, turns, noise)
        assert len(weight) > 12
        mean = np.average(place, axis=0, weights=weight)
        variance = np.average(np.square(place - mean), axis=0, weights=weight)
        # Monte Carlo error of the plain mean, at the false-alarm rate of 1e-6, and 2e-3 for the
        # finite cells, the 40 lengths and the table of random moves.
        error = Z * np.sqrt(np.square(weight) @ np.square(place - mean)) / weight.sum() + 2e-3
        assert (np.abs(result.mean[n, -1] - mean) <= error).all()
        assert result.variance[n, -1] == pytest.approx(variance.mean(), rel=0.3, abs=1e-3)
        differences += (np.abs(mutant.mean[n, -1] - mean) > error).any()
    assert differences >= 1


def test_turns_are_evidence():
    """The posterior that ignores turns is another one, and worse."""
    walk = simulate(MAZE, World(), 200, 20, seed=12)
    errors = {}
    for turns in (True, False):
        result = ExactFilter(MAZE, World(), turns=turns)(walk)
        errors[turns] = squared_errors(result.mean, walk.position).mean(axis=1)
    assert errors[True].mean() < 0.9 * errors[False].mean()


class Watching(ExactFilter):
    """Notes at every step whether the true start lies in a cell that is left."""

    start = None

    def _refine(self, cells, half, evidence, seen):
        cells = super()._refine(cells, half, evidence, seen)
        near = np.abs(cells.centre - self.start[cells.owner]).max(axis=1)
        inside = near <= half[cells.owner] + 1e-9
        covered = np.bincount(cells.owner, inside, len(half))
        assert (covered >= 1).all()
        self.steps += 1
        return cells


def test_the_true_start_is_never_lost(walk):
    part = Trajectories(*(field[:40] for field in walk))
    watching = Watching(MAZE, World(), chunk=40)
    watching.start, watching.steps = part.position[:, 0], 0
    watching(part)
    assert watching.steps == part.position.shape[1]
    watching.start = watching.start + 0.3  # a mutant's truth
    with pytest.raises(AssertionError):
        watching(part)


def calibration(mean, variance, position):
    """z of (squared error - posterior variance), averaged over each trajectory's steps."""
    excess = (squared_errors(mean, position) - variance).mean(axis=1)
    return excess.mean() / (excess.std(ddof=1) / np.sqrt(len(excess)))


def test_the_posterior_is_calibrated(walk, posterior):
    assert abs(calibration(posterior.mean, posterior.variance, walk.position)) < Z


def test_calibration_catches_other_filters(walk, posterior):
    """Mutants: too sure, too modest, and one that answers a draw instead of the mean."""
    mean, variance = posterior.mean, posterior.variance
    assert calibration(mean, variance / 2, walk.position) > Z
    assert calibration(mean, variance * 2, walk.position) < -Z
    assert calibration(posterior.samples[:, :, 0], variance, walk.position) > Z


def test_readings_of_another_world_leave_no_start(walk):
    with pytest.raises(DataError, match="no possible start"):
        ExactFilter(MAZE, World(observation_noise=0.03))(walk)
    with pytest.raises(DataError, match="no possible start"):
        ExactFilter(MAZE, World())(walk._replace(observation=walk.observation[::-1]))


def test_ranks_of_the_truth_are_uniform(walk, posterior):
    """The truth is like a draw: its rank among 40 draws is uniform (simulation-based calibration).

    One step a trajectory, so ranks are independent; chi-square over ten groups of ranks, false
    alarm 1e-6: 9 degrees of freedom, 44.8. Mutant: draws around the mean, half as wide.
    """
    steps = np.arange(len(walk.position)) % 12
    index = np.arange(len(steps))
    truth, draws = walk.position[index, steps], posterior.samples[index, steps]
    mean = posterior.mean[index, steps][:, None]
    narrow = mean + 0.5 * (draws - mean)

    def chi_square(drawn):
        rank = (drawn < truth[:, None]).sum(axis=1)
        counts = np.histogram(rank, bins=np.linspace(-0.5, 40.5, 11))[0].sum()
        groups = np.histogram(rank / 41, bins=10, range=(0, 1))[0]
        return np.square(groups - counts / 10).sum() / (counts / 10)

    assert chi_square(draws) < 44.8
    assert chi_square(narrow) > 44.8


def test_at_first_the_posterior_is_fourfold(walk, posterior):
    """With one reading the posterior is mirror-symmetric: its mean is the centre of the map."""
    np.testing.assert_allclose(posterior.mean[:, 0], 5.0, atol=0.02)
    quadrant = (posterior.samples[:, 0] > 5) @ [1, 2]
    share = np.bincount(quadrant.ravel(), minlength=4) / quadrant.size
    assert np.abs(share - 0.25).max() < Z * np.sqrt(0.25 * 0.75 / quadrant.size)


def test_the_floor_beats_the_centre_and_falls(walk, posterior):
    floor = squared_errors(posterior.mean, walk.position)
    centre = squared_errors(np.array([5.0, 5.0]), walk.position)
    assert floor[:, -1].mean() < 0.25 * centre[:, -1].mean()
    thirds = floor.reshape(len(floor), 3, 4).mean(axis=(0, 2))
    assert thirds[0] > thirds[1] > thirds[2]


def test_answers_depend_on_the_inputs_up_to_their_step_only(walk, posterior):
    short = Trajectories(*(field[:20, :9] for field in walk))
    result = ExactFilter(MAZE, World())(short)
    np.testing.assert_allclose(result.mean, posterior.mean[:20, :9], rtol=0, atol=1e-9)
    # The release's input shows the next move at once, which can only help.
    ahead = ExactFilter(MAZE, World())(short, next_action=True)
    assert (ahead.mean[:, 0] != result.mean[:, 0]).any()
    assert ahead.variance.mean() < result.variance.mean()


def test_positions_are_not_looked_at(walk, posterior):
    hidden = walk._replace(position=walk.position * np.nan, heading=walk.heading * np.nan)
    part = Trajectories(*(field[:10] for field in hidden))
    result = ExactFilter(MAZE, World())(part)
    np.testing.assert_array_equal(result.mean, posterior.mean[:10])


def test_the_number_of_cells_hardly_matters(walk, posterior):
    part = Trajectories(*(field[:40] for field in walk))
    fine = ExactFilter(MAZE, World(), cells=300)(part)
    error = squared_errors(posterior.mean[:40], walk.position[:40]).mean()
    assert squared_errors(fine.mean, posterior.mean[:40]).mean() < 0.02 * error


@pytest.mark.parametrize("name", ["maze18", "maze27"])
def test_the_larger_mazes_have_a_floor(name):
    maze = load_maze(name)
    walk = simulate(maze, World(), 40, 20, seed=2)
    result = ExactFilter(maze, World())(walk)
    centre = squared_errors(np.array([maze.width, maze.height]) / 2, walk.position)
    floor = squared_errors(result.mean, walk.position)
    assert floor[:, -1].mean() < 0.3 * centre[:, -1].mean()
    assert abs(calibration(result.mean, result.variance, walk.position)) < Z


def test_hidden_moves_and_unknown_headings_are_refused():
    with pytest.raises(DataError, match="realised"):
        ExactFilter(MAZE, World(action="command"))
    with pytest.raises(DataError, match="direction noise"):
        ExactFilter(MAZE, World(direction_noise=3.0))


def test_scores_on_known_errors():
    errors = np.array([[4.0, 0.0], [4.0, 2.0], [1.0, 0.5], [0.0, 0.1]])
    scores = localization_scores(errors)
    assert scores["last_step_mse"] == pytest.approx(0.65)
    assert scores["all_steps_mse"] == pytest.approx(11.6 / 8)
    assert scores["last_step_mse_se"] == pytest.approx(np.std([0, 2, 0.5, 0.1]) / 2)
    assert scores["median"] == pytest.approx(0.3)
    assert scores["success"] == 75
    assert squared_errors(np.array([1.0, 2.0]), np.array([0.0, 0.0])) == 2.5


@pytest.mark.slow
def test_calibration_of_many_trajectories_needs_the_turns():
    """Mutant: without the turns the posterior is another one, on many trajectories visibly so."""
    walk = simulate(MAZE, World(), 3_000, 24, seed=21)
    z = {}
    for turns in (True, False):
        result = ExactFilter(MAZE, World(), turns=turns)(walk)
        late = slice(12, None)
        z[turns] = calibration(
            result.mean[:, late], result.variance[:, late], walk.position[:, late]
        )
    assert abs(z[True]) < Z
    assert abs(z[False]) > Z


def test_headings_before_a_turn_follow_from_the_actions(walk):
    evidence = evidence_of(walk)
    np.testing.assert_allclose(wrap_degrees(evidence.heading - walk.heading), 0, atol=1e-6)
    np.testing.assert_allclose(
        evidence.offset[:, :-1], walk.position - walk.position[:, :1], atol=1e-12
    )
