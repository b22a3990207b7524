"""The maze data sets' arrays: shapes, inputs of both modes, scaling, controls, seeds."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pfrnn.errors import ConfigError
from pfrnn.study.data.maze.maps import load_maze
from pfrnn.study.data.registry import dataset, protocol

SMALL = {"train": 30, "validation": 10, "test": 20, "steps": 12, "posterior_trajectories": 0}
MAZES = ["maze10", "maze18", "maze27"]


def prepare(name="maze10", seed=1, **changes):
    values = protocol(name, {**SMALL, **changes})
    return dataset(name).prepare(Path("nowhere"), values, seed)


@pytest.mark.parametrize("name", MAZES)
def test_shapes_and_types_follow_the_contract(name):
    arrays = prepare(name)
    for split, count in (("train", 30), ("validation", 10), ("test", 20)):
        part = arrays.splits[split]
        assert part.x.shape == (count, 12, 8)
        assert part.y.shape == (count, 12, 4)
        assert part.x.dtype == part.y.dtype == np.float32
        assert part.mask.all()
        assert (part.length == 12).all()
    rows = np.concatenate([part.rows.ravel() for part in arrays.splits.values()])
    assert len(np.unique(rows)) == len(rows)
    np.testing.assert_array_equal(arrays.extra["map"], load_maze(name).grid)
    assert len(arrays.features) == 8


def test_paper_mode_shows_the_move_that_led_to_the_step():
    arrays = prepare()
    x, y = arrays.splits["train"].x, arrays.splits["train"].y
    assert (x[:, 0, :3] == 0).all()
    position = y[..., :2] * np.array(arrays.target_std[:2]) + np.array(arrays.target_mean[:2])
    np.testing.assert_allclose(np.diff(position, axis=1), x[:, 1:, :2] * 0.2, atol=1e-5)


def test_release_mode_shows_the_move_to_come_with_direction_noise():
    arrays = prepare(input="authors_code")
    x, y = arrays.splits["train"].x, arrays.splits["train"].y
    position = y[..., :2] * np.array(arrays.target_std[:2]) + np.array(arrays.target_mean[:2])
    np.testing.assert_allclose(np.diff(position, axis=1), x[:, :-1, :2] * 0.2, atol=1e-5)
    angle = np.arctan2(x[..., 0], x[..., 1]) - np.arctan2(y[..., 2], y[..., 3])
    bent = np.rad2deg(np.abs((angle + np.pi) % (2 * np.pi) - np.pi))[x[..., 2] == 0]
    assert 2.5 < bent.max() < 3.01


def test_inputs_return_to_map_units_with_the_scale():
    arrays = prepare()
    offset, factor = arrays.extra["scale"]
    raw = arrays.splits["test"].x * factor + offset
    assert 0.18 - 1e-5 <= np.hypot(raw[:, 1:, 0], raw[:, 1:, 1]).min()
    assert np.abs(raw[..., 2]).max() <= 180 + 1e-3
    assert -0.1 - 1e-5 <= raw[..., 3:].min()


def test_headings_are_on_the_unit_circle():
    arrays = prepare()
    heading = arrays.splits["test"].y[..., 2:] * np.array(arrays.target_std[2:])
    np.testing.assert_allclose(np.square(heading).sum(-1), 1, atol=1e-6)


def test_the_map_centre_is_the_standardised_zero():
    arrays = prepare(test=200)
    y = arrays.splits["test"].y[..., :2] * np.array(arrays.target_std[:2])
    last = np.square(y[:, -1]).mean()
    centre = arrays.controls["map_centre"]
    assert centre["last_step_mse"] == pytest.approx(last, rel=1e-5)
    assert centre["all_steps_mse"] == pytest.approx(np.square(y).mean(), rel=1e-5)


@pytest.mark.parametrize("name", MAZES)
def test_the_exact_posterior_is_the_floor_of_the_same_test_trajectories(name):
    arrays = prepare(name, test=40, posterior_trajectories=30)
    exact, centre = arrays.controls["exact_posterior"], arrays.controls["map_centre"]
    assert exact["trajectories"] == 30
    assert centre["trajectories"] == 40
    assert exact["all_steps_mse"] < 0.7 * centre["all_steps_mse"]
    assert exact["success"] > centre["success"]
    test = arrays.splits["test"]
    np.testing.assert_array_equal(arrays.extra["exact_rows"], test.rows[:30, 0])
    position = test.y[:30, :, :2] * np.array(arrays.target_std[:2]) + arrays.target_mean[:2]
    error = np.square(arrays.extra["exact_mean"] - position).mean(-1)
    assert error[:, -1].mean() == pytest.approx(exact["last_step_mse"], abs=1e-5)
    gap = np.abs(arrays.extra["exact_samples"] - position[:8, :, None]).max(-1).min(-1)
    assert np.median(gap) < 0.1
    assert any("30 of 40" in note for note in arrays.notes)


def test_no_exact_posterior_where_moves_are_hidden_or_none_is_asked_for():
    hidden = prepare(action="command", posterior_trajectories=5)
    assert set(hidden.controls) == {"map_centre", "particle_filter"}
    assert any("filter on the true model" in note for note in hidden.notes)
    assert "exact_posterior" not in prepare(posterior_trajectories=0).controls
    noisy = prepare(input="authors_code", posterior_trajectories=5)
    assert set(noisy.controls) == {"map_centre", "posterior_without_turns"}
    assert any("does not use the turns" in note for note in noisy.notes)


def test_controls_speak_the_names_of_the_evaluation_and_agree_with_it():
    from pfrnn.study.evaluate.metrics import METRICS, contributions, metrics

    arrays = prepare(test=60)
    test = arrays.splits["test"]
    card = SimpleNamespace(task="localization", target_std=arrays.target_std)
    found = metrics(contributions(card, np.zeros_like(test.y), test.y, test.mask))
    centre = arrays.controls["map_centre"]
    assert set(METRICS["localization"]) == set(found)
    for metric, value in found.items():
        assert centre[metric] == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("name", MAZES)
def test_arrays_pass_the_contract_and_the_leakage_audit(name):
    from pfrnn.study.data.audit import check_contract, equal_sequences, shared_rows

    arrays = prepare(name)
    check_contract(arrays, "localization")
    assert [*shared_rows(arrays.splits), *equal_sequences(arrays.splits)] == []


def test_seeds_and_splits():
    one, same, other = prepare(seed=1), prepare(seed=1), prepare(seed=2)
    for split in one.splits:
        np.testing.assert_array_equal(one.splits[split].x, same.splits[split].x)
        assert (one.splits[split].y != other.splits[split].y).mean() > 0.9
    # A split depends on its own size only, and no trajectory stands in two splits.
    more = prepare(seed=1, train=60)
    np.testing.assert_array_equal(one.splits["test"].x, more.splits["test"].x)
    starts = np.concatenate([part.y[:, 0, :2] for part in one.splits.values()])
    assert len(np.unique(starts, axis=0)) == 60


def test_a_mistyped_protocol_key_is_refused():
    with pytest.raises(ConfigError, match="steps"):
        prepare(step=3)
