"""The estimate of a step's memory, and the population that is split by it in advance."""

from __future__ import annotations

import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.study.train.batches import epoch_batches, gather
from pfrnn.study.train.footprint import group_sizes, member_bytes, room
from pfrnn.study.train.members import final_members, hyper, search_members
from pfrnn.study.train.population import new_population

from .test_population import SETTINGS, _double, run, world  # noqa: F401

CPU = torch.device("cpu")


def test_the_fused_estimate_is_what_was_measured(tmp_path):
    """0.27 GiB a member, PF-LSTM in a population of 36, at the size of docs/performance.md.

    That was with the head's product outside the kernels, as two layers of it are.
    """
    _, path = world(tmp_path, "toy_regression", "pf_lstm", network={"text": "main"})
    spec = path.spec._replace(hidden=64, particles=30, encoder=64, inputs=8)
    each = member_bytes(spec, 64, 100, 40_000, "fused", False) / 2**30
    assert 0.27 < each < 0.4
    assert member_bytes(spec, 64, 100, 40_000, "fused", True) > 1.8 * each * 2**30


@pytest.mark.parametrize("change", [{"dropout": 0.5}, {"outputs": 5}, {"layers": 2}])
def test_a_head_inside_the_fused_loop_saves_a_tile(tmp_path, change):
    """The hidden states' gradient; it is made where particles leave the loop."""
    _, path = world(tmp_path, "toy_regression", "pf_lstm")
    inside = path.spec._replace(hidden=64, particles=30, encoder=64, inputs=8)
    tile = 1.25 * 4 * 100 * 64 * 30 * 64
    for name, saved in (("fused", tile), ("plain", 0)):
        sizes = [
            member_bytes(spec, 64, 100, 40_000, name, False)
            for spec in (inside, inside._replace(**change))
        ]
        assert sizes[1] - sizes[0] == pytest.approx(saved, abs=1)


@pytest.mark.parametrize("model", ["lstm", "gru", "lstm_bnrelu", "pf_lstm", "pf_gru"])
def test_the_estimate_covers_what_a_step_saves_and_not_much_more(tmp_path, model):
    problem, path = world(
        tmp_path,
        "maze10",
        model,
        datasets={"maze10": {"train": 30, "validation": 10, "test": 12, "steps": 12}},
        sizes={"localization": {"pf": 32, "lstm": 40, "gru": 40, "particles": 8}},
        training={"bptt": 100},
    )
    members = final_members(SETTINGS[0], 2, 1, "maze10")
    population = new_population(path.build, members, CPU)
    rows = epoch_batches(members, 1, problem.train.sequences, 16, CPU)[0]
    storages: dict[int, int] = {}
    kept = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)  # alive, so that no address is used twice
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        path.train_step(population, members, hyper(members, CPU), gather(problem.train, rows))
    count = sum(value[0].numel() for value in population.parameters.values())
    estimate = 2 * member_bytes(path.spec, 16, 12, count, path.name, False)
    saved = sum(storages.values())
    assert saved < estimate < 4 * saved


def test_groups_are_few_and_nearly_equal():
    assert group_sizes(12, 10, None) == [12]
    assert group_sizes(12, 10, 120) == [12]
    assert group_sizes(12, 10, 119) == [6, 6]
    assert group_sizes(12, 10, 50) == [4, 4, 4]
    assert group_sizes(7, 10, 30) == [3, 2, 2]
    # A member that doesn't fit is tried alone.
    assert group_sizes(3, 10, 5) == [1, 1, 1]


def test_room_is_unknown_on_a_cpu_and_can_be_set(monkeypatch):
    monkeypatch.delenv("PFRNN_MEMORY_LIMIT", raising=False)
    assert room(CPU) is None
    monkeypatch.setenv("PFRNN_MEMORY_LIMIT", "1.5")
    assert room(CPU) == 3 * 2**29
    for wrong in ("much", "0", "-1", "nan"):
        monkeypatch.setenv("PFRNN_MEMORY_LIMIT", wrong)
        with pytest.raises(ConfigError, match="expected GiB, a number above 0"):
            room(CPU)


@pytest.mark.usefixtures("_double")
def test_a_population_that_does_not_fit_is_split_before_it_starts(tmp_path, monkeypatch):
    problem, path = world(tmp_path, "toy_regression", "pf_gru")
    members = search_members([*SETTINGS, *SETTINGS[:2]], 1, "toy_regression")
    monkeypatch.delenv("PFRNN_MEMORY_LIMIT", raising=False)
    whole = run(problem, path, members, tmp_path / "whole")
    count = sum(value.numel() for value in path.build().parameters())
    each = member_bytes(path.spec, 16, 6, count, path.name, False)
    monkeypatch.setenv("PFRNN_MEMORY_LIMIT", str(2.5 * each / 2**30))
    split = run(problem, path, members, tmp_path / "split")
    (note,) = split.notes
    assert note.startswith("5 members need about ")
    assert note.endswith("more than there is; trained in 3 groups")
    for place in range(5):
        assert split.progress[place].score == pytest.approx(whole.progress[place].score, rel=1e-6)


def test_room_on_a_gpu_is_what_is_free_and_what_torch_keeps(monkeypatch):
    monkeypatch.delenv("PFRNN_MEMORY_LIMIT", raising=False)
    for name, value in (
        ("mem_get_info", (1000, 9000)),
        ("memory_reserved", 700),
        ("memory_allocated", 200),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert room(torch.device("cuda")) == 1350
