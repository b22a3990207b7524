"""Metrics by hand, their sampling errors against known ones, and the choice on validation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from pfrnn.errors import RecordError
from pfrnn.study.data.base import PreparedCard, Split
from pfrnn.study.evaluate.metrics import Contributions, average, contributions, metrics, score
from pfrnn.study.evaluate.sampling import overlapping_sequences, sampling_errors
from pfrnn.study.evaluate.selection import Candidate, better, choose


def card(task: str, std: tuple[float, ...] = (), classes: tuple[str, ...] = ()) -> PreparedCard:
    return PreparedCard(
        name="x",
        title="",
        task=task,
        state="simulated",
        state_note="",
        target="",
        unit="",
        metric="",
        licence="",
        redistributable=True,
        raw_sha256={},
        protocol={},
        protocol_digest="",
        arrays_digest="",
        sequences={},
        capped={},
        max_length=3,
        inputs=1,
        vocabulary=0,
        features=(),
        classes=classes,
        target_mean=tuple(5.0 for _ in std),
        target_std=std,
        controls={},
        notes=(),
    )


def test_regression_counts_observed_steps_only_in_the_targets_unit():
    y = np.zeros((2, 3, 1), np.float32)
    prediction = np.array([[[1.0], [2.0], [9.0]], [[3.0], [9.0], [9.0]]], np.float32)
    mask = np.array([[True, True, False], [True, False, False]])
    table = contributions(card("regression", (2.0,)), prediction, y, mask)
    # Errors 2, 4, 6 in the target's unit.
    found = metrics(table)
    assert found["mse"] == pytest.approx((4 + 16 + 36) / 3)
    assert found["rmse"] == pytest.approx(math.sqrt(56 / 3))
    assert found["mae"] == pytest.approx(4.0)
    assert score("regression", found) == found["rmse"]


def test_padding_may_hold_anything():
    y = np.zeros((1, 2, 1), np.float32)
    prediction = np.array([[[1.0], [math.nan]]], np.float32)
    mask = np.array([[True, False]])
    assert metrics(contributions(card("regression", (1.0,)), prediction, y, mask))["mse"] == 1.0


def test_classification_is_sklearns():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    table = contributions(card("classification", classes=("a", "b", "c")), logits, labels, None)
    found = metrics(table)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(labels, logits.argmax(1)))
    assert found["log_loss"] == pytest.approx(log_loss(labels, p, labels=[0, 1, 2]))
    assert found["brier"] == pytest.approx(np.square(p - np.eye(3)[labels]).sum(1).mean())
    assert score("classification", found) == pytest.approx(100 - found["accuracy"])


def test_localization_leaves_the_heading_out_and_takes_the_last_valid_step():
    y = np.zeros((2, 3, 4), np.float32)
    prediction = np.zeros_like(y)
    prediction[0, :, 0] = [1.0, 2.0, 3.0]
    prediction[0, :, 2] = 100.0  # sine: not a position
    prediction[1, :, 1] = [0.5, 0.1, 50.0]
    mask = np.array([[True, True, True], [True, True, False]])
    table = contributions(card("localization", (2.0, 2.0, 1.0, 1.0)), prediction, y, mask)
    # Mean of the two squared coordinates: 36/2 and 0.04/2.
    found = metrics(table)
    assert found["last_step_mse"] == pytest.approx((18 + 0.02) / 2)
    assert found["median"] == pytest.approx(found["last_step_mse"])
    assert found["all_steps_mse"] == pytest.approx((2 + 8 + 18 + 0.5 + 0.02) / 5)
    assert found["success"] == 50.0
    assert found["p90"] == pytest.approx(0.02 + 0.9 * (18 - 0.02))
    assert score("localization", found) == found["all_steps_mse"]


def test_wrong_shapes_are_refused():
    y = np.zeros((2, 3, 1))
    with pytest.raises(ValueError, match="expected"):
        contributions(card("regression", (1.0,)), y[:, :2], y, np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="expected"):
        contributions(card("classification"), y, np.zeros(2, int), np.ones((2, 3), bool))


def test_average_of_passes_averages_metrics_that_are_means():
    rng = np.random.default_rng(1)
    tables = [
        Contributions(
            "regression",
            {"squared": rng.random(6), "absolute": rng.random(6), "count": np.ones(6)},
        )
        for _ in range(3)
    ]
    each = [metrics(table)["mse"] for table in tables]
    assert metrics(average(tables))["mse"] == pytest.approx(np.mean(each))


def test_sampling_error_of_a_mean_is_its_standard_error():
    rng = np.random.default_rng(2)
    losses = rng.exponential(size=400)
    table = Contributions(
        "classification",
        {"correct": (rng.random(400) < 0.8) * 1.0, "log_loss": losses, "brier": losses},
    )
    found = sampling_errors(table, 2000, 3)
    # A bootstrap of 2,000 knows its own standard deviation to 1.6 %: 8 % is five of those.
    assert found["log_loss"] == pytest.approx(losses.std() / 20, rel=0.08)
    share = table.columns["correct"].mean()
    assert found["accuracy"] == pytest.approx(100 * math.sqrt(share * (1 - share) / 400))
    assert found == sampling_errors(table, 2000, 3)
    assert found["brier"] != sampling_errors(table, 2000, 4)["brier"]


def test_sampling_error_draws_whole_sequences():
    """Steps of a sequence that err together leave a larger error than independent steps."""
    rng = np.random.default_rng(4)
    steps = 50
    shared = np.square(rng.normal(size=40)) * steps
    alone = np.square(rng.normal(size=(40, steps))).sum(1)
    errors = [
        sampling_errors(
            Contributions("regression", {"squared": s, "absolute": s, "count": np.full(40, steps)}),
            500,
            5,
        )["mse"]
        for s in (shared, alone)
    ]
    assert errors[0] > 3 * errors[1]


def test_one_sequence_gives_no_sampling_error():
    one = {"squared": np.ones(1), "absolute": np.ones(1), "count": np.ones(1)}
    assert all(
        math.isnan(v) for v in sampling_errors(Contributions("regression", one), 100, 0).values()
    )


def candidate(member: int, value: float, loss: float) -> Candidate:
    return Candidate("b", member, 8, 0, 32, 1e-3, 5.0, 1e-4, "completed", 3, 2, value, loss)


def test_choice_is_the_lowest_score_then_the_lowest_loss_then_the_first():
    found = choose([candidate(0, 2.0, 1.0), candidate(1, 1.0, 9.0), candidate(2, 1.0, 3.0)])
    assert found.member == 2
    assert choose([candidate(0, 1.0, 3.0), candidate(1, 1.0, 3.0)]).member == 0
    assert choose([candidate(0, math.nan, 0.0), candidate(1, 5.0, 9.0)]).member == 1
    with pytest.raises(RecordError, match="all diverged"):
        choose([candidate(0, math.nan, 1.0), candidate(1, math.inf, 1.0)])


def test_better_never_accepts_what_is_not_finite():
    assert better(1.0, 1.0, math.inf, math.inf)
    assert not better(math.nan, 1.0, math.inf, math.inf)
    assert not better(math.inf, 1.0, math.inf, math.inf)
    assert not better(1.0, 1.0, 1.0, 1.0)


def overlapping_split(starts: list[int], steps: int = 4) -> Split:
    rows = np.array(starts)[:, None] + np.arange(steps)
    count = len(starts)
    return Split(
        x=np.zeros((count, steps, 1), np.float32),
        length=np.full(count, steps, np.int32),
        y=np.zeros(count, np.int64),
        mask=np.arange(steps) == np.full((count, 1), steps - 1),
        rows=rows,
    )


def test_windows_that_share_rows_are_one_group() -> None:
    split = overlapping_split([0, 2, 10, 4, 20, 22])
    assert overlapping_sequences(split, "classification").tolist() == [0, 0, 1, 0, 2, 2]
    # Regression: only counted steps matter, and here each window counts another row.
    assert len(set(overlapping_sequences(split, "regression"))) == 6
    absent = split._replace(rows=np.full_like(split.rows, -1))
    assert len(set(overlapping_sequences(absent, "classification"))) == 6
    short = split._replace(length=np.array([2, 4, 4, 4, 4, 4], np.int32))
    assert overlapping_sequences(short, "classification").tolist() == [0, 1, 2, 1, 3, 3]


def test_copies_of_a_sequence_add_no_information() -> None:
    """A hundred recordings, each cut into ten equal windows: the error is that of a hundred."""
    rng = np.random.default_rng(0)
    correct = (rng.random(100) < 0.8).astype(float)
    columns = {name: correct for name in ("correct", "log_loss", "brier")}
    hundred = Contributions("classification", columns)
    copies = Contributions("classification", {n: np.repeat(v, 10) for n, v in columns.items()})
    groups = np.repeat(np.arange(100), 10)
    honest = sampling_errors(hundred, 2000, 1)["accuracy"]
    grouped = sampling_errors(copies, 2000, 1, groups)["accuracy"]
    # 2000 replicates know a standard error to 1.6 %: five of those, and the factor for G.
    assert grouped == pytest.approx(honest, rel=0.09)
    assert sampling_errors(copies, 2000, 1)["accuracy"] < 0.4 * honest  # what it would be without
    alone = sampling_errors(hundred, 200, 1, np.arange(100))
    assert alone == sampling_errors(hundred, 200, 1)
    assert np.isnan(sampling_errors(copies, 200, 1, np.zeros(1000, int))["accuracy"])
