"""The step in place: the numbers of a loop that makes new tensors, in memory that stays."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from pfrnn.functional.batch_norm import Statistics, update_running
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import gather
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.members import final_members, hyper, search_members
from pfrnn.study.train.optimiser import rmsprop
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.population import Population, new_population
from pfrnn.study.variants import variant

from .test_population import SETTINGS, run, world

CPU = torch.device("cpu")
# Histories of two epochs by the loop that made new tensors (`Rebinding`), before the step came to
# be in place; the filter's with a linear head again since the mean is taken behind it (rounding).
RECORDED = Path(__file__).with_name("recorded.json")
CASES = [
    ("toy_regression", "gru"),
    ("toy_regression", "lstm_bnrelu"),
    ("toy_regression", "pf_lstm"),
    ("toy_classes", "pf_gru"),
    ("maze10", "lstm"),
]


class Rebinding(PlainPath):
    """The step as a loop would write it: new tensors each time, the counter on the host."""

    def train_step(self, population, members, hyper, batch):
        axes = ("train", population.epoch, population.step)
        leaves = {k: v.detach().requires_grad_() for k, v in population.parameters.items()}
        output, loss = self.training_loss(leaves, population, members, batch, axes)
        gradients = torch.autograd.grad(
            loss.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        finite = population.finite & torch.isfinite(loss)
        update = rmsprop(
            population.parameters,
            dict(zip(leaves, gradients, strict=True)),
            population.square_average,
            hyper,
            self.training.rmsprop_decay,
            self.training.rmsprop_eps,
            finite,
        )
        sequences = batch.x.shape[2]
        row = [loss.detach() * sequences, torch.full_like(loss, sequences), update.gradient_norm]
        population.buffers = self.moved(population, output.statistics)
        population.parameters = update.parameters
        population.square_average = update.square_average
        population.finite = finite & torch.isfinite(update.gradient_norm)
        population.sums = population.sums + torch.stack(row)
        population.count_step()

    def moved(self, population, own):
        if own is None:
            return population.buffers
        name = "core.cell.running."
        before = [population.buffers[name + part] for part in ("mean", "variance")]
        steps = len(own.mean)
        new = update_running(
            (before[0][..., :steps, :], before[1][..., :steps, :]),
            Statistics(
                own.mean.movedim(0, -2), own.variance.movedim(0, -2), own.count.movedim(0, -1)
            ),
            max(0.1, 1.0 / (population.updates + 1)),
        )
        parts = zip(("mean", "variance"), before, new, strict=True)
        return {
            name + part: torch.cat([value, old[..., steps:, :]], -2) for part, old, value in parts
        }


def start(tmp_path, name="toy_regression", model="pf_lstm", count=3):
    problem, path = world(tmp_path, name, model)
    members = final_members(SETTINGS[0], count, 1, name)
    population = new_population(path.build, members, CPU)
    batch = gather(problem.train, torch.arange(6).repeat(count, 1).numpy())
    return path, population, members, batch


@pytest.mark.parametrize(("name", "model"), CASES)
def test_in_place_has_the_bits_of_a_loop_with_new_tensors(tmp_path, name, model):
    """Past the tenth update, where the running statistics' momentum stops falling."""
    settings = [*SETTINGS, Setting(1e30, 5.0, 0.0)]
    problem, path = world(tmp_path, name, model, training={"max_epochs": 5, "patience": 2})
    old = Rebinding(path.spec, path.weights, path.training)
    members = search_members(settings, 1, name)
    ends = [run(problem, one, members, tmp_path / str(i)) for i, one in enumerate((path, old))]
    assert [one.status for one in ends[0].progress] == [one.status for one in ends[1].progress]
    assert ends[0].progress[3].status == "diverged"
    for row, other in zip(ends[0].history, ends[1].history, strict=True):
        assert row | {"seconds": 0} == pytest.approx(other | {"seconds": 0}, abs=0, nan_ok=True)
    for place in range(3):
        for stack in (0, 1):
            for key, value in ends[0].best[place][stack].items():
                assert torch.equal(value, ends[1].best[place][stack][key]), key


@pytest.mark.parametrize("case", json.loads(RECORDED.read_text()))
def test_histories_are_those_recorded_before_the_step_was_in_place(tmp_path, case):
    """Equal bits where they were recorded; other processors and libraries round otherwise."""
    problem, plain = world(tmp_path, case["set"], case["variant"])
    kind, count = variant(case["variant"]), problem.train.sequences
    path = choose_path(plain.spec, kind, problem.config, count, CPU)
    members = search_members(SETTINGS[:2], 1, case["set"])
    state = run(problem, path, members, tmp_path)
    for row, recorded in zip(state.history, case["history"], strict=False):
        for key, value in recorded.items():
            assert row[key] == pytest.approx(value, rel=1e-4), key


def addresses(population: Population) -> dict[str, int]:
    found = {}
    for field in dataclasses.fields(population):
        value = getattr(population, field.name)
        if isinstance(value, dict):
            found |= {f"{field.name}.{key}": part.data_ptr() for key, part in value.items()}
        elif isinstance(value, torch.Tensor):
            found[field.name] = value.data_ptr()
    return found


@pytest.mark.parametrize("model", ["gru", "pf_lstm", "lstm_bnrelu"])
def test_no_tensor_of_a_population_moves(tmp_path, model):
    path, population, members, batch = start(tmp_path, model=model)
    before = addresses(population)
    assert len(set(before.values())) == len(before), "two names for one piece of memory"
    for _ in range(2):
        path.train_step(population, members, hyper(members, CPU), batch)
    population.remember_best(torch.tensor([True, False, True]))
    population.start_epoch()
    path.predict(population, members, batch, ("validation", 0, 0), True)
    assert addresses(population) == before
    assert int(population.clock) == population.updates == 2
    # What can move is caught: the loop with new tensors.
    old = Rebinding(path.spec, path.weights, path.training)
    old.train_step(population, members, hyper(members, CPU), batch)
    assert addresses(population) != before


def test_the_best_state_is_a_copy(tmp_path):
    path, population, members, batch = start(tmp_path)
    first = {key: value.clone() for key, value in population.best_parameters.items()}
    path.train_step(population, members, hyper(members, CPU), batch)
    assert all(torch.equal(value, first[key]) for key, value in population.best_parameters.items())
    population.remember_best(torch.tensor([False, True, False]))
    for key, value in population.best_parameters.items():
        assert torch.equal(value[1], population.parameters[key][1])
        assert torch.equal(value[0], first[key][0])


def test_two_halves_of_a_population_share_nothing(tmp_path):
    problem, path = world(tmp_path, "toy_regression", "pf_lstm")
    members = final_members(SETTINGS[0], 3, 1, "toy_regression")
    population = new_population(path.build, members, CPU)
    halves = population.take([0, 1]), population.take([2])
    before = {key: value.clone() for key, value in halves[1].parameters.items()}
    batch = gather(problem.train, torch.arange(6).repeat(2, 1).numpy())
    path.train_step(halves[0], members[:2], hyper(members[:2], CPU), batch)
    assert int(halves[1].clock) == int(population.clock) == 0
    assert all(torch.equal(value, before[key]) for key, value in halves[1].parameters.items())
    assert set(addresses(halves[0]).values()).isdisjoint(addresses(halves[1]).values())


@pytest.mark.parametrize(
    "where",
    [
        "pfrnn.study.train.path.PlainPath.forward",
        "pfrnn.study.train.path.rmsprop",
        "pfrnn.study.train.path.running_statistics",
        "torch.stack",
    ],
)
def test_a_step_that_runs_out_of_memory_changes_nothing(tmp_path, monkeypatch, where):
    path, population, members, batch = start(tmp_path)
    settings = hyper(members, CPU)
    path.train_step(population, members, settings, batch)
    before = [value.clone() for value in population.trained()]

    def fail(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(where, fail)
        with pytest.raises(torch.OutOfMemoryError):
            path.train_step(population, members, settings, batch)
    assert population.step == population.updates == 1
    assert all(torch.equal(a, b) for a, b in zip(before, population.trained(), strict=True))
