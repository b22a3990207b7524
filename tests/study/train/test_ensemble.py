"""Bagging: the bootstrap samples, the limits, and what averaging does to an error."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch

from pfrnn.study.evaluate.ensemble import ambiguity, combine, probabilities
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import bootstrap_sample, epoch_order
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import repetition_groups, run_final
from pfrnn.study.train.members import ensemble_members, final_members

from . import toys
from .worlds import run, world

SETTING = Setting(0.01, 5.0, 1e-4)


def test_inclusion_rate_of_the_bootstrap():
    """Share of sequences in a sample: 1 - (1 - 1/n)^n. False alarm 1e-6: |z| < 4.9."""
    count, samples = 40, 2000
    shares = np.array([len(set(bootstrap_sample(s, count))) / count for s in range(samples)])
    truth = 1 - (1 - 1 / count) ** count
    error = shares.std(ddof=1) / samples**0.5
    assert abs(shares.mean() - truth) < 4.9 * error
    # Mutant: a sample of half the size has another rate.
    half = np.array(
        [len(set(bootstrap_sample(s, count)[: count // 2])) / count for s in range(samples)]
    )
    assert abs(half.mean() - truth) > 50 * error


def test_samples_differ_between_members_and_repeat_with_the_seed():
    members = ensemble_members(SETTING, 2, 3, 1, "air")
    assert [member.repetition for member in members] == [1, 1, 1, 2, 2, 2]
    samples = [tuple(bootstrap_sample(member.bootstrap_seed, 50)) for member in members]
    assert len(set(samples)) == 6
    assert samples == [
        tuple(bootstrap_sample(member.bootstrap_seed, 50))
        for member in ensemble_members(SETTING, 2, 3, 1, "air")
    ]
    assert len({member.seed for member in members}) == 6


def test_a_member_sees_its_own_sample_in_every_epoch():
    member = ensemble_members(SETTING, 1, 2, 1, "air")[1]
    first, second = (epoch_order(member, epoch, 30) for epoch in (1, 2))
    assert not np.array_equal(first, second)
    expected = np.sort(bootstrap_sample(member.bootstrap_seed, 30))
    assert np.array_equal(np.sort(first), expected)
    assert np.array_equal(np.sort(second), expected)


def test_one_member_on_the_full_sample_is_the_single_model(tmp_path):
    problem, path = world(tmp_path, "toy_regression", "gru")
    single = final_members(SETTING, 1, 1, "toy_regression")
    member = ensemble_members(SETTING, 1, 1, 1, "toy_regression")[0]
    whole = member._replace(
        bootstrap_seed=None, seed=single[0].seed, order_seed=single[0].order_seed
    )
    first, second = (
        run(problem, path, m, tmp_path / str(i)) for i, m in enumerate((single, [whole]))
    )
    for key, value in first.best[0][0].items():
        assert torch.equal(value, second.best[0][0][key])
    prediction = np.random.default_rng(0).normal(size=(1, 5, 3))
    assert np.array_equal(combine(prediction, "regression"), prediction[0])
    again = probabilities(combine(prediction, "classification"))
    np.testing.assert_allclose(again, probabilities(prediction[0]), rtol=1e-12)


def test_ambiguity_decomposition():
    rng = np.random.default_rng(1)
    prediction, y = rng.normal(size=(7, 20, 4, 2)), rng.normal(size=(20, 4, 2))
    average, members, spread = ambiguity(prediction, y)
    assert average == pytest.approx(members - spread, rel=1e-12)
    assert spread > 0.1
    assert average == pytest.approx(np.square(combine(prediction, "regression") - y).mean())


def test_averaged_probabilities_obey_jensen():
    """Log loss and Brier score of the average are at most the members' mean; accuracy need not."""
    rng = np.random.default_rng(2)
    logits, labels = 2 * rng.normal(size=(5, 200, 3)), rng.integers(0, 3, 200)
    one_hot = np.eye(3)[labels]

    def losses(p):
        picked = (p * one_hot).sum(-1)
        return -np.log(picked).mean(), np.square(p - one_hot).sum(-1).mean()

    average = losses(probabilities(combine(logits, "classification")))
    each = np.mean([losses(probabilities(one)) for one in logits], axis=0)
    assert (np.array(average) <= each).all()


@pytest.mark.parametrize("name", ["toy_regression", "toy_classes"])
def test_ensemble_final_averages_its_members(tmp_path, name):
    plan = toys.study(
        {"study": {"datasets": [name], "variants": ["gru_ensemble"]}},
        {"evaluation": {"ensemble_repetitions": 2}},
    )
    places = toys.prepared_places(plan, tmp_path)
    cell = plan.cells[0]
    assert [block.variant for block in cell.blocks] == ["gru"]
    for block in cell.blocks:
        train_block(plan, block.id, places)
    select_cell(plan, cell.selection_id, places.results)
    run_final(plan, cell.final_id, places)
    folder = places.results / cell.final_id
    record = json.loads((folder / "run.json").read_text())
    assert record["members"] == 2 * 4
    assert record["variant"] == "gru_ensemble"
    with (folder / "test.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert {row["repetition"] for row in rows} == {"1", "2"}
    with np.load(folder / "predictions.npz") as sample:
        values = sample["prediction" if name == "toy_regression" else "probability"]
        assert values.shape[0] == 2
        assert not np.array_equal(values[0], values[1])


def test_groups_keep_members_of_a_repetition_together():
    members = ensemble_members(SETTING, 2, 3, 1, "air")
    assert repetition_groups(members) == {1: [0, 1, 2], 2: [3, 4, 5]}
