"""A population of M is M models trained alone; a member's numbers don't depend on its company."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pfrnn.study.train.batches import epoch_orders, gather
from pfrnn.study.train.members import final_members, search_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.variants import VARIANTS

from .worlds import DIVERGES, SETTINGS, OneStep, Setting, run, world

# Histories of two epochs by a loop that made new tensors in every step. One value of a filter is of
# torch's own backward pass: a bias before batch norm has rounding for a gradient, and in float64
# both agree to 7.6e-15.
RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
MODELS = [
    ("toy_regression", "lstm", True),
    ("toy_regression", "gru", False),
    ("toy_regression", "lstm_bnrelu", True),
    ("toy_regression", "pf_lstm", False),
    ("toy_regression", "pf_gru", True),
    ("toy_classes", "pf_lstm", True),
    ("toy_classes", "gru", True),
    ("maze10", "pf_gru", False),
]


@pytest.mark.parametrize(("name", "model", "search"), MODELS)
@pytest.mark.usefixtures("_double")
def test_population_equals_single_runs(tmp_path, name, model, search):
    problem, path = world(tmp_path, name, model)
    if search:
        members = search_members(SETTINGS, 1, name)
    else:
        members = final_members(SETTINGS[0], 3, 1, name)
    together = run(problem, path, members, tmp_path / "all")
    for place, member in enumerate(members):
        alone = run(problem, path, [member], tmp_path / f"only{place}")
        assert alone.progress[0].status == together.progress[place].status
        assert alone.progress[0].best_epoch == together.progress[place].best_epoch
        # Equal but for rounding. A bias in front of a batch norm has gradient 0 up to rounding
        # (1e-16), which RMSprop divides by its epsilon (1e-8): steps of 1e-8 and more.
        assert alone.progress[0].score == pytest.approx(together.progress[place].score, rel=1e-6)
        for stack, other in zip(alone.best[0], together.best[place], strict=True):
            for key, value in stack.items():
                torch.testing.assert_close(value, other[key], rtol=1e-6, atol=1e-6)


def test_one_step_of_a_population_equals_a_plain_module_and_torchs_optimiser(tmp_path):
    problem, path = world(tmp_path, "toy_regression", "lstm")
    one = OneStep(problem, path, final_members(SETTINGS[1], 1, 1, "toy_regression"))
    module = path.build()
    module.load_state_dict({k: v[0] for k, v in one.population.parameters.items()})
    optimiser = torch.optim.RMSprop(
        module.parameters(), lr=0.01, alpha=0.99, eps=1e-8, weight_decay=1e-2
    )
    orders = epoch_orders(one.members, 1, problem.train.sequences)
    for rows in problem.train.batches(orders, 16):
        one.rows = rows
        one.train()
        batch = gather(problem.train, rows.device, one.cut)
        optimiser.zero_grad()
        prediction = module(batch.x[:, 0], None, None).prediction
        loss = (prediction - batch.y[:, 0]).square().mean(-1).sum(0).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimiser.step()
    for key, value in module.state_dict().items():
        torch.testing.assert_close(one.population.parameters[key][0], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", RECORDED)
def test_histories_are_those_recorded_before_the_step_was_in_place(tmp_path, case):
    """Equal bits where they were recorded; other processors and libraries round otherwise."""
    problem, path = world(tmp_path, case["set"], case["variant"])
    state = run(problem, path, search_members(SETTINGS[:2], 1, case["set"]), tmp_path)
    for row, recorded in zip(state.history, case["history"], strict=False):
        for key, value in recorded.items():
            assert row[key] == pytest.approx(value, rel=1e-4), key


@pytest.mark.usefixtures("_double")
def test_members_share_no_gradient(tmp_path):
    """A neighbour with another learning rate changes nothing, one that diverges neither."""
    problem, path = world(tmp_path, "toy_regression", "pf_lstm")
    ends = [
        run(problem, path, search_members([SETTINGS[0], other], 1, "toy"), tmp_path / str(n))
        for n, other in enumerate((SETTINGS[1], Setting(1e300, 5.0, 1e-4)))
    ]
    assert [one.status for one in ends[1].progress] == ["completed", "diverged"]
    for key, value in ends[0].best[0].parameters.items():
        torch.testing.assert_close(value, ends[1].best[0].parameters[key], rtol=1e-6, atol=1e-6)


def test_early_stopping_drops_a_member_and_the_others_go_on(tmp_path):
    problem, path = world(
        tmp_path, "toy_regression", "gru", training={"max_epochs": 6, "patience": 1}
    )
    # A learning rate of zero never improves after its first epoch.
    members = search_members([Setting(0.0, 5.0, 0.0), SETTINGS[0]], 1, "toy_regression")
    state = run(problem, path, members, tmp_path)
    assert state.progress[0].status == "early_stopped"
    assert (state.progress[0].epochs, state.progress[0].best_epoch) == (2, 1)
    assert state.progress[1].epochs > 2


def failing(monkeypatch, limit, error):
    """Let training steps of more than ``limit`` members fail."""
    original = PlainPath.losses

    def losses(self, weights, *rest):
        if len(next(iter(weights.parameters.values()))) > limit:
            raise error
        return original(self, weights, *rest)

    monkeypatch.setattr(PlainPath, "losses", losses)


@pytest.mark.usefixtures("_double")
def test_out_of_memory_halves_the_population_and_changes_no_number(tmp_path, monkeypatch):
    problem, path = world(tmp_path, "toy_regression", "pf_gru")
    members = search_members([*SETTINGS, SETTINGS[0]], 1, "toy_regression")
    whole = run(problem, path, members, tmp_path / "whole")
    failing(monkeypatch, 2, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    halved = run(problem, path, members, tmp_path / "halved")
    assert halved.notes == ["out of memory with 4 members side by side; going on with half of them"]
    for place in range(4):
        assert halved.progress[place].score == pytest.approx(whole.progress[place].score, rel=1e-6)


def test_another_error_is_not_taken_for_a_lack_of_memory(tmp_path, monkeypatch):
    problem, path = world(tmp_path, "toy_regression", "gru")
    failing(monkeypatch, 0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run(problem, path, search_members(SETTINGS, 1, "toy_regression"), tmp_path)


def tensors_of(population):
    """Every tensor of a population, by name."""
    found = {}
    for name, value in population.to_plain().items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": part for key, part in value.items()}
        elif isinstance(value, list) and name == "best":
            for stack in value:
                found |= {f"best.{key}": part for key, part in stack.items()}
        elif isinstance(value, torch.Tensor):
            found[name] = value
    return found


@pytest.mark.parametrize("model", ["gru", "pf_lstm"])
def test_no_tensor_of_a_population_moves(tmp_path, model):
    """A captured step finds them where they were."""
    problem, path = world(tmp_path, "toy_regression", model)
    one = OneStep(problem, path, final_members(SETTINGS[0], 3, 1, "toy"))
    before = {key: value.data_ptr() for key, value in tensors_of(one.population).items()}
    assert len(set(before.values())) == len(before), "two names for one piece of memory"
    for _ in range(2):
        one.train()
    one.population.remember_best(torch.tensor([True, False, True]))
    one.population.start_epoch()
    one.predict()
    after = {key: value.data_ptr() for key, value in tensors_of(one.population).items()}
    assert after == before
    assert int(one.population.clock) == one.population.updates == 2


def test_the_best_weights_are_a_copy(tmp_path):
    problem, path = world(tmp_path, "toy_regression", "pf_lstm")
    one = OneStep(problem, path, final_members(SETTINGS[0], 3, 1, "toy"))
    population = one.population
    first = {key: value.clone() for key, value in population.best.parameters.items()}
    one.train()
    assert all(torch.equal(value, first[key]) for key, value in population.best.parameters.items())
    population.remember_best(torch.tensor([False, True, False]))
    for key, value in population.best.parameters.items():
        assert torch.equal(value[1], population.parameters[key][1])
        assert torch.equal(value[0], first[key][0])


@pytest.mark.parametrize("where", ["forward", "_update"])
def test_a_step_that_runs_out_of_memory_changes_nothing(tmp_path, monkeypatch, where):
    problem, path = world(tmp_path, "toy_regression", "pf_lstm")
    one = OneStep(problem, path, final_members(SETTINGS[0], 3, 1, "toy"))
    one.train()
    before = {key: value.clone() for key, value in tensors_of(one.population).items()}

    def fail(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(PlainPath, where, fail)
        with pytest.raises(torch.OutOfMemoryError):
            one.train()
    assert one.population.step == one.population.updates == 1
    after = tensors_of(one.population)
    assert all(torch.equal(value, after[key]) for key, value in before.items())


def test_a_member_that_diverges_keeps_its_last_finite_weights(tmp_path):
    problem, path = world(tmp_path, "toy_regression", "gru")
    one = OneStep(problem, path, search_members([SETTINGS[0], DIVERGES], 1, "toy"))
    for _ in range(3):
        one.train()
    assert one.population.finite.tolist() == [True, False]
    assert all(value.isfinite().all() for value in one.population.parameters.values())


def test_all_trainable_variants_are_listed():
    """A variant added later must be trained here or named as another test's."""
    elsewhere = {"bayes_lstm", "bayes_gru", "lstm_ensemble", "gru_ensemble"}
    ablations = {name for name in VARIANTS if name.startswith("pf_lstm_")}
    assert {model for _, model, _ in MODELS} | elsewhere | ablations == set(VARIANTS)
