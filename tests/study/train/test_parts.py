"""Parts of the engine: optimiser, batches, noise, seeds, evaluation, records."""

from __future__ import annotations

import csv
import math
from collections import Counter

import numpy as np
import pytest
import torch

from pfrnn.study.data.base import Split
from pfrnn.study.plan import Setting
from pfrnn.study.train.batches import (
    DeviceSplit,
    cut_of,
    epoch_order,
    epoch_orders,
    gather,
    rows_on,
    to_device,
)
from pfrnn.study.train.evaluate import evaluate
from pfrnn.study.train.interrupt import stop_requests
from pfrnn.study.train.members import ensemble_members, final_members, hyper, search_members
from pfrnn.study.train.noise import draw
from pfrnn.study.train.optimiser import rmsprop
from pfrnn.study.train.population import initial_state, new_population
from pfrnn.study.train.tables import write_table

from .worlds import CPU, world

SETTINGS = [Setting(0.01, 0.5, 1e-2), Setting(0.003, 1e9, 0.0)]


def test_rmsprop_is_torchs_for_every_member():
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (3, 4), "b": (5,)}
    start = {k: torch.randn(2, *s, generator=generator) for k, s in shapes.items()}
    settings = hyper(search_members(SETTINGS, 0, "x"), CPU)
    parameters, squares = start, {k: torch.zeros_like(v) for k, v in start.items()}
    singles = []
    for m, setting in enumerate(SETTINGS):
        own = [torch.nn.Parameter(start[k][m].clone()) for k in shapes]
        optimiser = torch.optim.RMSprop(
            own, lr=setting.learning_rate, alpha=0.95, eps=1e-6, weight_decay=setting.l2
        )
        singles.append((own, optimiser, setting.clip))
    for _ in range(5):
        gradients = {k: torch.randn(2, *s, generator=generator) for k, s in shapes.items()}
        alive = torch.ones(2, dtype=torch.bool)
        update = rmsprop(parameters, gradients, squares, settings, 0.95, 1e-6, alive)
        update.write()
        for m, (own, optimiser, clip) in enumerate(singles):
            for value, key in zip(own, shapes, strict=True):
                value.grad = gradients[key][m].clone()
            norm = torch.nn.utils.clip_grad_norm_(own, clip)
            assert float(norm) == pytest.approx(float(update.gradient_norm[m]), rel=1e-6)
            optimiser.step()
            for value, key in zip(own, shapes, strict=True):
                torch.testing.assert_close(parameters[key][m], value.data, rtol=1e-5, atol=1e-6)


def test_rmsprop_leaves_stopped_and_broken_members_alone():
    parameters = {"a": torch.ones(3, 2)}
    gradients = {"a": torch.tensor([[1.0, 1.0], [1.0, 1.0], [math.nan, 1.0]])}
    settings = hyper(search_members([SETTINGS[0]] * 3, 0, "x"), CPU)
    alive = torch.tensor([True, False, True])
    squares = {"a": torch.zeros(3, 2)}
    update = rmsprop(parameters, gradients, squares, settings, 0.9, 1e-8, alive)
    # Until it is written: a step can be repeated.
    assert (parameters["a"] == 1).all()
    update.write()
    assert (parameters["a"] != 1).any(1).tolist() == [True, False, False]
    assert (squares["a"][1:] == 0).all()


def split(lengths: list[int], steps: int = 5) -> DeviceSplit:
    count = len(lengths)
    x = np.arange(count * steps * 2, dtype=np.float32).reshape(count, steps, 2)
    time = np.arange(steps)[None]
    mask = time < np.array(lengths)[:, None]
    return to_device(
        Split(x, np.array(lengths, np.int32), x[..., :1].copy(), mask, np.zeros((count, steps))),
        CPU,
    )


def test_gather_puts_time_first_and_trims_padding():
    data = split([2, 3, 1, 5])
    rows = rows_on(np.array([[0, 1], [2, 0]]), CPU)
    cut = cut_of(data, rows)
    assert cut == (3, True, (3, 2), 2)
    batch = gather(data, rows.device, cut)
    assert batch.x.shape == (3, 2, 2, 2)
    assert torch.equal(batch.x[:, 1, 0], data.x[2, :3])
    assert torch.equal(batch.y[:, 0, 1], data.y[1, :3])
    assert batch.valid is not None
    assert batch.valid[:, 0, 0].tolist() == [True, True, False]
    assert batch.valid[:, 1, 0].tolist() == [True, False, False]
    assert cut_of(data, rows, 2).steps == 4
    assert cut_of(data, rows, 4) == cut_of(data, rows, 4)._replace(steps=4)
    assert cut_of(data, rows, 9).steps == 5
    whole = split([5, 5])
    rows = rows_on(np.array([[0, 1]]), CPU)
    assert gather(whole, rows.device, cut_of(whole, rows)).valid is None


def test_an_epoch_sees_every_sequence_once_in_each_members_order():
    members = final_members(SETTINGS[0], 3, 1, "air")
    data = split([5] * 10)
    batches = list(data.batches(epoch_orders(members, 4, 10), 4))
    assert len(list(data.batches(epoch_orders(members, 4, 10), 4, start=1))) == 2
    assert [batch.host.shape for batch in batches] == [(3, 4), (3, 4), (3, 2)]
    assert all(np.array_equal(batch.host, batch.device.numpy()) for batch in batches)
    orders = np.concatenate([batch.host for batch in batches], 1)
    for order in orders:
        assert sorted(order) == list(range(10))
    assert len({tuple(order) for order in orders}) == 3
    assert not np.array_equal(orders[0], epoch_order(members[0], 5, 10))


def test_order_is_paired_across_variants_and_depends_on_the_data_set():
    first, again, other = (
        final_members(SETTINGS[i], 2, 1, name) for i, name in ((0, "air"), (1, "air"), (0, "pm"))
    )
    assert [m.order_seed for m in first] == [m.order_seed for m in again]
    assert {m.order_seed for m in first}.isdisjoint(m.order_seed for m in other)
    assert len({m.seed for m in first}) == 2
    search = search_members(SETTINGS, 1, "air")
    assert len({m.seed for m in search}) == len({m.order_seed for m in search}) == 1
    # The search's repetition is none of the finals'.
    assert search[0].seed not in {m.seed for m in first}


SHAPE = (3, 4, 5)


def test_noise_of_a_member_does_not_depend_on_its_company():
    members = [*final_members(SETTINGS[0], 3, 1, "air"), *search_members(SETTINGS, 1, "air")]
    axes = ("train", 1, 2)
    together = draw(members, axes, [4, 2, 4, 3, 3], SHAPE, CPU, initial=True)
    assert together.normal.shape == (4, 5, 3, 4, 5)
    assert together.uniform.shape == (4, 5, 3, 4)
    assert together.initial.shape == (2, 5, 3, 4, 5)
    for place, length in enumerate([4, 2, 4, 3, 3]):
        alone = draw([members[place]], axes, [length], SHAPE, CPU, initial=True)
        assert torch.equal(together.normal[:length, place], alone.normal[:, 0])
        assert torch.equal(together.uniform[:length, place], alone.uniform[:, 0])
        assert torch.equal(together.initial[:, place], alone.initial[:, 0])
    # Two members of the search share a seed and so their noise.
    assert torch.equal(together.normal[:, 3], together.normal[:, 4])


@pytest.mark.parametrize("axes", [("train", 1, 3), ("train", 2, 2), ("validation", 1, 2)])
def test_noise_differs_between_steps_epochs_and_uses(axes):
    members = final_members(SETTINGS[0], 2, 1, "air")
    first = draw(members, ("train", 1, 2), [4, 4], SHAPE, CPU)
    second = draw(members, axes, [4, 4], SHAPE, CPU)
    assert not (first.normal == second.normal).any()
    assert not torch.equal(first.normal[:, 0], first.normal[:, 1])


def test_noise_has_the_right_distribution():
    """False alarm 1e-6 a test: |z| < 4.9; uniforms taken for normals would be far outside."""
    members = final_members(SETTINGS[0], 1, 1, "air")
    noise = draw(members, ("train", 1, 1), [50], (20, 10, 20), CPU)
    normal, uniform = noise.normal.double().flatten(), noise.uniform.double().flatten()
    root = math.sqrt(len(normal))
    assert abs(float(normal.mean()) * root) < 4.9
    assert abs(float((normal.square().mean() - 1) * root / math.sqrt(2))) < 4.9
    assert abs(float((uniform.mean() - 0.5) * math.sqrt(12 * len(uniform)))) < 4.9
    assert (uniform >= 0).all()
    assert (uniform < 1).all()
    assert abs(float(uniform.square().mean() - 1)) > 0.1


def test_no_uniforms_without_resampling():
    noise = draw(final_members(SETTINGS[0], 1, 1, "a"), (), [2], (2, 3, 4), CPU, uniform=False)
    assert noise.uniform is None
    assert noise.initial is None


def test_initial_weights_depend_on_the_seed_only(tmp_path):
    _, path = world(tmp_path, "toy_regression", "pf_lstm")
    before = torch.random.get_rng_state()
    first, again, other = (initial_state(path.build, seed) for seed in (5, 5, 6))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[key], again[key]) for key in first)
    key = "core.cell.weight_recurrent"
    assert not torch.equal(first[key], other[key])
    members = final_members(SETTINGS[0], 2, 1, "air")
    population = new_population(path.build, members, CPU)
    for place, member in enumerate(members):
        own = initial_state(path.build, member.seed)
        assert torch.equal(population.parameters[key][place], own[key])


def test_ensemble_seeds_never_meet_the_finals():
    finals = {m.seed for m in final_members(SETTINGS[0], 6, 1, "air")}
    assert finals.isdisjoint(m.seed for m in ensemble_members(SETTINGS[0], 6, 20, 1, "air"))


@pytest.mark.parametrize("name", ["toy_regression", "toy_classes", "maze10"])
def test_evaluation_covers_every_sequence_with_fixed_noise(tmp_path, name):
    problem, path = world(tmp_path, name, "pf_gru")
    members = final_members(SETTINGS[0], 2, 1, name)
    population = new_population(path.build, members, CPU)
    first, again = (
        evaluate(path, population.current, members, problem.validation, ("validation", 0))
        for _ in range(2)
    )
    other = evaluate(path, population.current, members, problem.validation, ("validation", 1))
    count = problem.validation.sequences
    outputs = path.spec.outputs
    steps = problem.validation.mask.shape[1]
    expected = (2, count, outputs) if name == "toy_classes" else (2, count, steps, outputs)
    assert first.prediction.shape == expected
    assert np.array_equal(first.prediction, again.prediction)
    assert not np.array_equal(first.prediction, other.prediction)
    assert ((first.ess > 1 / 4 - 1e-9) & (first.ess <= 1)).all()
    assert ((first.unique >= 1 / 4) & (first.unique <= 1)).all()


def test_evaluation_does_not_depend_on_how_it_is_cut_for_a_plain_rnn(tmp_path, monkeypatch):
    problem, path = world(tmp_path, "toy_classes", "lstm")
    members = final_members(SETTINGS[0], 2, 1, "toy_classes")
    population = new_population(path.build, members, CPU)
    whole = evaluate(path, population.current, members, problem.train, ("test", 0))
    monkeypatch.setattr("pfrnn.study.train.evaluate.EVALUATION_BATCH", 7)
    parts = evaluate(path, population.current, members, problem.train, ("test", 0))
    np.testing.assert_allclose(whole.prediction, parts.prediction, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole.loss, parts.loss, rtol=1e-5)


def test_table_keeps_floats_exactly_and_leaves_what_is_not_finite_empty(tmp_path):
    rows = [{"a": 0.1 + 0.2, "b": math.nan}, {"a": 7, "c": "x"}]
    write_table(tmp_path / "t.csv", ("a", "b"), rows)
    with (tmp_path / "t.csv").open(newline="") as source:
        found = list(csv.DictReader(source))
    assert list(found[0]) == ["a", "b", "c"]
    assert float(found[0]["a"]) == 0.1 + 0.2
    assert [row["b"] for row in found] == ["", ""]
    assert [row["c"] for row in found] == ["", "x"]


def test_stop_request_restores_the_handlers():
    import signal

    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    with stop_requests() as asked:
        signal.raise_signal(signal.SIGTERM)
        assert asked == [signal.SIGTERM]
        # A second one has its usual effect.
        assert signal.getsignal(signal.SIGTERM) == before[0]
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before


def test_seeds_are_distinct_over_many_axes():
    seeds = Counter(
        member.seed
        for name in ("air", "pm")
        for member in (*final_members(SETTINGS[0], 6, 1, name), *search_members(SETTINGS, 1, name))
    )
    # Twice a data set: the two members of the search.
    assert sorted(seeds.values()) == [1] * 12 + [2] * 2
