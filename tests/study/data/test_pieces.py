"""Splits, scaling, imputation, windows, controls: small cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfrnn.errors import DataError
from pfrnn.study.data.base import Protocol, Split
from pfrnn.study.data.controls import (
    control_scores,
    linear_autoregression,
    linear_changes,
    logistic_regression,
    majority,
    persistence,
    regression_scores,
)
from pfrnn.study.data.forecast import forecast_windows
from pfrnn.study.data.scaling import carry_forward, fit_scaler
from pfrnn.study.data.splits import by_group, by_time, cap_index
from pfrnn.study.data.windows import Windows, scaled_splits


@given(st.integers(20, 5000), st.floats(0.1, 0.4), st.floats(0.1, 0.4))
def test_by_time_covers_every_row_once_in_order(rows: int, validation: float, test: float) -> None:
    parts = by_time(rows, validation, test)
    assert [*parts["train"], *parts["validation"], *parts["test"]] == list(range(rows))
    assert abs(len(parts["test"]) - test * rows) <= 1


def test_by_time_refuses_an_empty_part() -> None:
    with pytest.raises(DataError, match="a part would be empty"):
        by_time(10, 0.5, 0.5)
    with pytest.raises(DataError, match="a part would be empty"):
        by_time(3, 0.1, 0.1)


def test_by_group_deals_each_group_once_and_keeps_every_class() -> None:
    labels = {f"{label}-{i}": label for label in range(3) for i in range(4 + label)}
    sides = by_group(labels, 0.2, 0.25, seed=1)
    assert set(sides) == set(labels)
    for split in ("train", "validation", "test"):
        assert {labels[group] for group in labels if sides[group] == split} == {0, 1, 2}
    assert sides == by_group(labels, 0.2, 0.25, seed=1)
    assert sides != by_group(labels, 0.2, 0.25, seed=2)


def test_cap_is_a_seeded_sorted_subset() -> None:
    protocol = Protocol(max_train=5)
    chosen = cap_index("train", 100, protocol, seed=3)
    assert len(set(chosen.tolist())) == 5
    assert (np.diff(chosen) > 0).all()
    assert (chosen == cap_index("train", 100, protocol, seed=3)).all()
    assert not (chosen == cap_index("train", 100, protocol, seed=4)).all()
    assert cap_index("test", 100, protocol, seed=3).tolist() == list(range(100))
    assert cap_index("train", 4, protocol, seed=3).tolist() == list(range(4))


def test_scaler_uses_observed_values_only() -> None:
    values = np.array([[1.0, 7.0], [3.0, 7.0], [1e9, 7.0]])
    observed = np.array([[True, True], [True, True], [False, True]])
    scaler = fit_scaler(values, observed)
    assert scaler.mean.tolist() == [2.0, 7.0]
    assert scaler.std.tolist() == [1.0, 1.0]  # the constant column keeps its scale
    assert scaler.apply(values[:2]).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_scaler_survives_nan_where_nothing_is_observed() -> None:
    values = np.array([[np.nan], [4.0], [6.0]])
    assert fit_scaler(values, ~np.isnan(values)).mean.tolist() == [5.0]


def test_carry_forward_never_looks_ahead() -> None:
    values = np.array([[np.nan], [2.0], [np.nan], [np.nan], [5.0]])
    filled = carry_forward(values, ~np.isnan(values), np.array([9.0]))
    assert filled[:, 0].tolist() == [9.0, 2.0, 2.0, 2.0, 5.0]


def test_forecast_windows_predict_the_next_row() -> None:
    rows = np.arange(20, dtype=np.float32)[:, None]
    observed = np.ones(20, dtype=bool)
    observed[12] = False
    split = forecast_windows(rows, rows, observed, np.array([10, 14]), length=4)
    assert split.x[..., 0].tolist() == [[10, 11, 12, 13], [14, 15, 16, 17]]
    assert split.y[..., 0].tolist() == [[11, 0, 13, 14], [15, 16, 17, 18]]
    assert split.mask.tolist() == [[True, False, True, True], [True] * 4]
    assert split.rows.tolist() == [[10, 11, 12, 13], [14, 15, 16, 17]]
    with pytest.raises(DataError, match="no window of 4 steps"):
        forecast_windows(rows, rows, observed, np.arange(0), length=4)


def test_persistence_by_hand() -> None:
    past = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    rows = np.array([[2, 3]])
    assert persistence(past, rows)[..., 0].tolist() == [[4.0, 8.0]]
    assert persistence(past, rows, lag=2)[..., 0].tolist() == [[2.0, 4.0]]
    assert persistence(past, np.array([[0]]), lag=24)[..., 0].tolist() == [[1.0]]


def test_regression_scores_by_hand() -> None:
    prediction = np.array([[1.0, 2.0, 100.0]])[..., None]
    truth = np.array([[2.0, 4.0, 0.0]])[..., None]
    scores = regression_scores(prediction, truth, np.array([[True, True, False]]))
    assert scores == {"rmse": 2.5**0.5, "mae": 1.5, "mse": 2.5}


def test_linear_autoregression_finds_a_linear_recurrence() -> None:
    """An undamped AR(2) without noise is predicted exactly; persistence is far off."""
    past = np.empty(300)
    past[:2] = 1.0, 1.5
    for i in range(2, 300):
        past[i] = 1.6 * past[i - 1] - past[i - 2]
    rows = np.arange(200, 299)[None]
    observed = np.ones(300, dtype=bool)
    truth = past[rows + 1][..., None]
    found = linear_autoregression(past, observed, range(200), rows, lags=2)
    assert np.abs(found - truth).max() < 1e-4
    assert np.abs(persistence(past, rows) - truth).max() > 0.5


def test_linear_autoregression_reads_training_rows_only() -> None:
    draw = np.random.default_rng(0)
    past = draw.normal(size=300)
    observed = np.ones(300, dtype=bool)
    rows = np.arange(100, 150)[None]
    one = linear_autoregression(past, observed, range(100), rows, lags=3)
    later = past.copy()
    later[200:] = 1e6
    assert (linear_autoregression(later, observed, range(100), rows, lags=3) == one).all()


def test_linear_changes_finds_an_index_of_its_parts() -> None:
    draw = np.random.default_rng(0)
    parts = np.cumsum(draw.normal(size=(200, 3)), axis=0)
    index = parts @ np.array([1.0, 2.0, 3.0])
    ahead = np.concatenate([parts[1:], parts[-1:]])
    rows = np.arange(100, 199)[None]
    found = linear_changes(ahead, index, np.arange(1, 99), rows)[..., 0]
    assert np.abs(found - index[rows + 1]).max() < 1e-3


def windows(labels: np.ndarray, seed: int) -> Split:
    x = np.random.default_rng(seed).normal(3 * labels[:, None, None], 1, (len(labels), 5, 2))
    rows = np.arange(5 * len(labels)).reshape(-1, 5)
    return scaled_splits({"train": Windows(x, labels, rows)}, np.zeros(2), np.ones(2))["train"]


def test_classification_controls() -> None:
    train = windows(np.array([0, 1, 1] * 20), 0)
    test = windows(np.array([0, 1] * 20), 1)
    predictions = {
        "majority": majority(train.y, 40),
        "logistic_regression": logistic_regression(train, test),
    }
    scores = control_scores(predictions, test, (), ())
    assert scores["majority"] == {"accuracy": 50.0}
    assert scores["logistic_regression"]["accuracy"] > 95
