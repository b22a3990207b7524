"""A population of M is M models trained alone; a member's numbers don't depend on its company."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pfrnn.study.data.base import Split
from pfrnn.study.data.prepare import load_prepared
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import DeviceSplit, epoch_batches, gather, to_device
from pfrnn.study.train.loss import loss_weights
from pfrnn.study.train.members import Member, final_members, hyper, search_members
from pfrnn.study.train.optimiser import Hyper
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import new_population
from pfrnn.study.train.problem import Problem
from pfrnn.study.train.spec import network_spec
from pfrnn.study.train.trainer import BlockTrainer
from pfrnn.study.variants import VARIANTS, variant

from . import toys

SETTINGS = [Setting(0.003, 5.0, 1e-4), Setting(0.01, 0.5, 1e-2), Setting(0.03, 3.0, 0.0)]


@pytest.fixture
def _double():
    """Float64, so that an equality can be tight.

    In float32 RMSprop turns rounding into steps: a bias in front of a batch norm has gradient 0
    but for rounding, and RMSprop divides by its size.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def world(tmp_path: Path, name: str, model: str, **patch: object):
    """Problem and path of one variant on one toy set, in torch's default dtype."""
    plan = toys.study({"study": {"datasets": [name], "variants": [model]}}, dict(patch))
    places = toys.prepared_places(plan, tmp_path)
    prepared = load_prepared(places.prepared / plan.prepared_id(name))
    config = plan.config
    block = plan.blocks[0]
    spec = network_spec(
        config,
        prepared.card,
        variant(block.variant),
        block.hidden_size,
        block.particles,
        prepared.extra,
    )
    path = PlainPath(spec, loss_weights(config.loss, variant(block.variant)), config.training)
    train, validation = (_on_cpu(prepared.splits[part]) for part in ("train", "validation"))
    return Problem(
        config, prepared.card, train, validation, prepared.splits["validation"], 16
    ), path


def _on_cpu(split: Split) -> DeviceSplit:
    moved = to_device(split, torch.device("cpu"))
    x, y = (
        tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor
        for tensor in (moved.x, moved.y)
    )
    return moved._replace(x=x, y=y)


def run(problem: Problem, path: PlainPath, members: list[Member], folder: Path):
    numbered = [member._replace(number=place) for place, member in enumerate(members)]
    trainer = BlockTrainer(problem, path, numbered, folder, "test")
    return trainer.run()


MODELS = [
    ("toy_regression", "lstm"),
    ("toy_regression", "gru"),
    ("toy_regression", "lstm_bnrelu"),
    ("toy_regression", "pf_lstm"),
    ("toy_regression", "pf_gru"),
    ("toy_classes", "pf_lstm"),
    ("toy_classes", "gru"),
    ("maze10", "pf_gru"),
]


@pytest.mark.parametrize(("name", "model"), MODELS)
@pytest.mark.parametrize("search", [True, False])
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
        for stack in (0, 1):
            for key, value in alone.best[0][stack].items():
                torch.testing.assert_close(
                    value, together.best[place][stack][key], rtol=1e-6, atol=1e-6
                )


def test_one_step_of_a_population_equals_a_plain_module_and_torchs_optimiser(tmp_path):
    problem, path = world(tmp_path, "toy_regression", "lstm")
    member = final_members(SETTINGS[1], 1, 1, "toy_regression")
    population = new_population(path.build, member, torch.device("cpu"))
    module = path.build()
    module.load_state_dict({k: v[0] for k, v in population.parameters.items()})
    optimiser = torch.optim.RMSprop(
        module.parameters(), lr=0.01, alpha=0.99, eps=1e-8, weight_decay=1e-2
    )
    for index in epoch_batches(member, 1, problem.train.sequences, 16, torch.device("cpu")):
        batch = gather(problem.train, index)
        path.train_step(population, member, hyper(member, torch.device("cpu")), batch)
        optimiser.zero_grad()
        prediction = module(batch.x[:, 0], None, None).prediction
        loss = (prediction - batch.y[:, 0]).square().mean(-1).sum(0).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimiser.step()
    for key, value in module.state_dict().items():
        torch.testing.assert_close(population.parameters[key][0], value, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_double")
def test_members_share_no_gradient(tmp_path):
    """A neighbour with another learning rate changes nothing, one that diverges neither."""
    problem, path = world(tmp_path, "toy_regression", "pf_lstm")
    calm = Setting(0.003, 5.0, 1e-4)
    first = run(
        problem, path, search_members([calm, SETTINGS[1]], 1, "toy_regression"), tmp_path / "a"
    )
    second = run(
        problem,
        path,
        search_members([calm, Setting(1e300, 5.0, 1e-4)], 1, "toy_regression"),
        tmp_path / "b",
    )
    assert second.progress[1].status == "diverged"
    assert second.progress[0].status == "completed"
    for key, value in first.best[0][0].items():
        torch.testing.assert_close(value, second.best[0][0][key], rtol=1e-6, atol=1e-6)


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


@pytest.mark.usefixtures("_double")
def test_out_of_memory_halves_the_population_and_changes_no_number(tmp_path, monkeypatch):
    problem, path = world(tmp_path, "toy_regression", "pf_gru")
    members = search_members([*SETTINGS, SETTINGS[0]], 1, "toy_regression")
    whole = run(problem, path, members, tmp_path / "whole")
    original = PlainPath.forward

    def forward(self, parameters, *rest):
        if len(next(iter(parameters.values()))) > 2 and rest[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return original(self, parameters, *rest)

    monkeypatch.setattr(PlainPath, "forward", forward)
    halved = run(problem, path, members, tmp_path / "halved")
    assert halved.notes == ["out of memory with 4 members side by side; going on with half of them"]
    for place in range(4):
        assert halved.progress[place].score == pytest.approx(whole.progress[place].score, rel=1e-6)


def test_another_error_is_not_taken_for_a_lack_of_memory(tmp_path, monkeypatch):
    problem, path = world(tmp_path, "toy_regression", "gru")

    def forward(self, *_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(PlainPath, "forward", forward)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run(problem, path, search_members(SETTINGS, 1, "toy_regression"), tmp_path)


def test_hyper_keeps_the_members_order():
    stacked = hyper(search_members(SETTINGS, 1, "air"), torch.device("cpu"))
    assert isinstance(stacked, Hyper)
    assert stacked.clip.tolist() == [5.0, 0.5, 3.0]
    assert stacked.take(torch.tensor([2, 0])).clip.tolist() == [3.0, 5.0]


def test_all_trainable_variants_are_listed():
    """A variant added later must be trained here or named as another test's."""
    elsewhere = {"bayes_lstm", "bayes_gru", "lstm_ensemble", "gru_ensemble"}
    ablations = {name for name in VARIANTS if name.startswith("pf_lstm_")}
    assert {model for _, model in MODELS} | elsewhere | ablations == set(VARIANTS)
