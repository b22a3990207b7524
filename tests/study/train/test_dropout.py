"""Dropout on the cell's output: its numbers, its place, and that evaluation has none."""

from __future__ import annotations

import csv
import math

import pytest
import torch

from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.plan import Setting
from pfrnn.study.train.block import train_block
from pfrnn.study.train.cores import Randomness
from pfrnn.study.train.final import run_final
from pfrnn.study.train.members import final_members, search_members
from pfrnn.study.train.noise import draw, draw_dropout, dropout_factors

from . import toys
from .worlds import CPU, OneStep, run, world

SETTING = Setting(0.01, 5.0, 1e-4)
AXES = ("train", 1, 0)


def start(tmp_path, model, name="toy_regression", dropout=0.5, **patch):
    problem, path = world(tmp_path, name, model, network={"dropout": dropout}, **patch)
    return OneStep(problem, path, final_members(SETTING, 2, 1, name))


def masks(members, axes, lengths, sizes, rate, steps=None):
    """Dropout's factors at one rate for all."""
    uniform = draw_dropout(members, axes, lengths, sizes, CPU, steps)
    return dropout_factors(uniform, torch.full((len(members),), rate, dtype=torch.float64))


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_rate_and_scale(rate):
    """False alarm 1e-6 (|z| < 4.9): zeros are a share of ``rate``, the factors' mean is 1."""
    members = final_members(SETTING, 3, 1, "toy")
    found = masks(members, AXES, [50] * 3, (20, 5, 10), rate)
    assert found.shape == (50, 3, 20, 5, 10)
    assert set(found.unique().tolist()) == {0.0, found.max().item()}
    assert found.max().item() == pytest.approx(1 / (1 - rate))
    number = found[:, 0].numel()
    error = math.sqrt(rate * (1 - rate) / number)
    for member in range(3):
        share = (found[:, member] == 0).double().mean().item()
        assert abs(share - rate) < 4.9 * error
        mean = found[:, member].double().mean().item()
        assert abs(mean - 1) < 4.9 * error / (1 - rate)
        # The known-wrong one: kept values not scaled up.
        assert abs(mean * (1 - rate) - 1) > 50 * error
    # Each member has its own mask: two agree as often as independent ones.
    agree = (found[:, 0] == found[:, 1]).double().mean().item()
    expected = rate**2 + (1 - rate) ** 2
    assert abs(agree - expected) < 4.9 * math.sqrt(expected * (1 - expected) / number)


def test_a_members_mask_is_its_own_in_any_company():
    members = final_members(SETTING, 3, 1, "toy")
    before = torch.random.get_rng_state()
    together = masks(members, AXES, [4, 6, 5], (3, 7), 0.5)
    alone = masks(members[1:2], AXES, [6], (3, 7), 0.5)
    assert torch.equal(together[:, 1], alone[:, 0])
    short = masks(members[:1], AXES, [4], (3, 7), 0.5)
    assert torch.equal(together[:4, 0], short[:, 0])
    longer = masks(members[:1], AXES, [4], (3, 7), 0.5, steps=8)
    assert torch.equal(longer[:4], short)
    assert not longer[4:].any()
    for other in (("train", 1, 1), ("train", 2, 0)):
        assert not torch.equal(alone, masks(members[1:2], other, [6], (3, 7), 0.5))
    # Members of a search share one seed, so one mask: their differences are the settings'.
    search = search_members([SETTING, SETTING._replace(learning_rate=0.1)], 1, "toy")
    shared = masks(search, AXES, [6, 6], (3, 7), 0.5)
    assert torch.equal(shared[:, 0], shared[:, 1])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_mask_is_not_the_noise_again():
    """The ancestors' uniforms come from another seed: they agree as often as independent ones."""
    members = final_members(SETTING, 1, 1, "toy")
    shape = (20, 10, 1)
    drawn = draw(members, AXES, [50], shape, CPU)
    mask = masks(members, AXES, [50], (20, 10, 1), 0.5).squeeze(-1) > 0
    for numbers in (drawn.uniform >= 0.5, drawn.normal.squeeze(-1) >= 0):
        agree = (numbers == mask).double().mean().item()
        assert abs(agree - 0.5) < 4.9 * 0.5 / math.sqrt(mask.numel())


@pytest.mark.parametrize("model", ["pf_lstm", "pf_gru", "pf_lstm_noelbo"])
def test_particles_are_dropped_after_the_loop(tmp_path, model):
    """By hand: the filter runs whole; its particles' states are masked, then averaged, read out."""
    one = start(tmp_path, model)
    path, weights, batch, randomness = one.path, one.population.current, one.batch, one.randomness()
    assert randomness.dropout.shape == (6, 2, 12, 4, 5)
    seen = {}
    core_run = path.network.core.run

    def watched(*arguments, **options):
        seen["output"] = core_run(*arguments, **(options | {"particles": True}))
        return seen["output"]

    path.network.core.run = watched
    found = path.forward(weights, batch, randomness, True).output
    whole = path.forward(weights, batch, randomness._replace(dropout=None), True).output
    assert torch.equal(found.log_weights, whole.log_weights)
    assert torch.equal(found.ancestors, whole.ancestors)
    assert torch.equal(found.statistics.mean, whole.statistics.mean)
    dropped = seen["output"].hidden * randomness.dropout
    shares = seen["output"].log_weights.exp()
    weight, bias = (weights.parameters[f"head.0.{part}"][None] for part in ("weight", "bias"))
    belief = (shares[..., None] * dropped).sum(-2)
    expected = belief @ weight + bias[..., None, :]
    torch.testing.assert_close(found.prediction, expected)
    assert not torch.allclose(found.prediction, whole.prediction)
    assert (found.particles is None) == (model == "pf_lstm_noelbo")
    if found.particles is not None:
        second = dropped[:, :, :, 1] @ weight + bias[..., None, :]
        torch.testing.assert_close(found.particles[:, :, :, 1], second)


@pytest.mark.parametrize(("name", "steps"), [("toy_regression", 6), ("toy_classes", 1)])
@pytest.mark.parametrize("model", ["lstm", "gru", "lstm_bnrelu"])
def test_hidden_states_are_dropped_before_the_head(tmp_path, model, name, steps):
    one = start(tmp_path, model, name)
    path, weights, batch, randomness = one.path, one.population.current, one.batch, one.randomness()
    hidden = path.spec.hidden
    assert randomness.dropout.shape == (steps, 2, 12, hidden)
    everything = Randomness(dropout=torch.zeros_like(randomness.dropout))
    nothing_left = path.forward(weights, batch, everything, True).output.prediction
    bias = weights.parameters["head.0.bias"][None, :, None].expand_as(nothing_left)
    assert torch.equal(nothing_left, bias)
    # The head is linear: the mask's two halves add up to twice the whole.
    other = Randomness(dropout=2 - randomness.dropout)
    halves = [path.forward(weights, batch, r, True).output.prediction for r in (randomness, other)]
    whole = path.forward(weights, batch, None, True).output.prediction
    torch.testing.assert_close(sum(halves) / 2, whole)
    assert not torch.allclose(*halves)


@pytest.mark.parametrize("model", ["lstm", "pf_gru", "bayes_gru"])
def test_evaluation_has_none(tmp_path, model):
    results = []
    for dropout in (0.0, 0.5):
        results.append(start(tmp_path, model, dropout=dropout).predict())
    assert torch.equal(results[0].output.prediction, results[1].output.prediction)
    assert torch.equal(results[0].loss, results[1].loss)


def seen_by(one):
    """The random numbers of every forward pass of a training step."""
    seen = []
    forward = one.path.forward

    def watched(weights, batch, randomness, training):
        seen.append(randomness)
        return forward(weights, batch, randomness, training)

    one.path.forward = watched
    one.losses()
    return seen


def test_rate_zero_draws_and_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("pfrnn.study.train.path.draw_dropout", None)
    for model in ("pf_lstm", "gru", "bayes_lstm"):
        (found,) = seen_by(start(tmp_path / model, model, dropout=0.0))
        assert found is None or found.dropout is None


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize(
    ("name", "model"),
    [("toy_classes", "pf_gru"), ("toy_regression", "bayes_lstm"), ("maze10", "pf_gru")],
)
def test_training_with_dropout_learns_and_keeps_members_apart(tmp_path, name, model):
    """A member alone trains as in company, up to rounding (float64; see test_population)."""
    members = final_members(Setting(0.003, 5.0, 1e-4), 2, 1, name)
    patch = {"training": {"max_epochs": 3}}
    problem, path = world(tmp_path, name, model, network={"dropout": 0.3}, **patch)
    together = run(problem, path, members, tmp_path / "all")
    alone = run(problem, path, members[1:], tmp_path / "alone")
    problem, plain = world(tmp_path, name, model, **patch)
    without = run(problem, plain, members[1:], tmp_path / "without")
    # Epoch by epoch: the losses that were trained on, and those of validation.
    for column in ("train_loss", "val_loss"):
        one = [row[column] for row in alone.history]
        two = [row[column] for row in together.history if row["member"] == 1]
        none = [row[column] for row in without.history]
        assert one == pytest.approx(two, rel=1e-6)
        assert one != pytest.approx(none, rel=1e-6)
    losses = [row["train_loss"] for row in alone.history]
    assert losses[-1] < losses[0]


def test_sharpening_sees_the_same_mask_as_the_loss(tmp_path):
    first, second = seen_by(start(tmp_path, "bayes_lstm", bayesian={"sharpening": True}))
    assert torch.equal(first.dropout, second.dropout)
    assert not torch.all(first.dropout == first.dropout.max())


def test_the_grid_may_search_over_rates(tmp_path):
    """A rate for each member; the final takes the chosen one. Without rates no id moves."""
    study = {"study": {"variants": ["gru", "pf_lstm_release"]}, "training": {"max_epochs": 2}}
    ids = [block.id for block in toys.study(study).blocks]
    assert [block.id for block in toys.study(study, {"grid": {"dropout": []}}).blocks] == ids
    plan = toys.study(study, {"grid": {"dropout": [0.0, 0.6]}})
    searched, named = plan.blocks
    assert [setting.dropout for setting in searched.settings] == [0.0, 0.6, 0.0, 0.6]
    assert searched.id != ids[0]
    # A row that names its dropout has that.
    assert named.id == ids[1]
    places = toys.prepared_places(plan, tmp_path)
    train_block(plan, searched.id, places)
    plain = toys.study(study)
    train_block(plain, plain.blocks[0].id, places)
    with_rates, without = (
        list(csv.DictReader((places.results / one / "members.csv").open()))
        for one in (searched.id, ids[0])
    )
    assert [row["dropout"] for row in with_rates] == ["0.0", "0.6", "0.0", "0.6"]
    assert "dropout" not in without[0]
    for place, row in enumerate(without):
        same, other = with_rates[2 * place : 2 * place + 2]
        assert float(same["val_score"]) == pytest.approx(float(row["val_score"]), rel=1e-5)
        assert float(other["val_score"]) != pytest.approx(float(row["val_score"]), rel=1e-5)
    cell = plan.cells[0]
    chosen = select_cell(plan, cell.selection_id, places.results)["chosen"]
    assert chosen["dropout"] in (0.0, 0.6)
    run_final(plan, cell.final_id, places)
    tested = list(csv.DictReader((places.results / cell.final_id / "members.csv").open()))
    assert {float(row["dropout"]) for row in tested} == {chosen["dropout"]}


def test_members_of_a_block_may_differ_in_their_rates(tmp_path):
    problem, path = world(tmp_path, "toy_regression", "pf_gru")
    settings = [SETTING._replace(dropout=rate) for rate in (0.0, 0.5, None)]
    one = OneStep(problem, path, search_members(settings, 1, "toy"))
    mask = one.randomness().dropout
    assert (mask[:, 0] == 1).all()
    assert set(mask[:, 1].unique().tolist()) == {0.0, 2.0}
    assert (mask[:, 2] == 1).all()
