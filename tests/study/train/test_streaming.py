"""Streamed and resident data give the same bits."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest
import torch

from pfrnn.study.data.base import Split
from pfrnn.study.evaluate.selection import select_cell
from pfrnn.study.files import read_json
from pfrnn.study.plan import Setting
from pfrnn.study.train import placement, streaming
from pfrnn.study.train.block import train_block
from pfrnn.study.train.final import run_final
from pfrnn.study.train.interrupt import StoppedError
from pfrnn.study.train.members import ensemble_members, search_members
from pfrnn.study.train.path import PlainPath
from pfrnn.study.train.places import Places
from pfrnn.study.train.streaming import StreamedSplit
from pfrnn.study.train.trainer import BlockTrainer

from . import toys
from .test_graphed import DIVERGES, Poisoned, paths
from .test_graphed import same as same_states
from .test_population import SETTINGS, run, world

CPU = torch.device("cpu")
TIMES = ["seconds", "wall_seconds"]


def trained(plan, places, monkeypatch, steps):
    choose(monkeypatch, steps)
    train_block(plan, plan.blocks[0].id, places)
    folder = places.results / plan.blocks[0].id
    said = read_json(folder / "run.json")["data"]
    assert said.startswith("resident: " if steps is None else f"streamed in chunks of {steps} ")
    return folder


def choose(monkeypatch, steps):
    if steps is None:
        monkeypatch.delenv(placement.VARIABLE, raising=False)
    else:
        monkeypatch.setenv(placement.VARIABLE, str(steps))


def same(one, other, tables=("members.csv", "history.csv")):
    a, b = (torch.load(folder / "best.pt") for folder in (one, other))
    for stack in a:
        assert all(torch.equal(a[stack][key], b[stack][key]) for key in a[stack])
    for name in tables:
        x, y = (pd.read_csv(f / name).drop(columns=TIMES, errors="ignore") for f in (one, other))
        pd.testing.assert_frame_equal(x, y, check_exact=True)


def patch(name, model):
    return {"study": {"datasets": [name], "variants": [model]}, "training": {"patience": 1}}


@pytest.mark.parametrize("steps", [1, 2, 50])
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("toy_regression", "bayes_lstm"),
        ("toy_regression", "lstm_bnrelu"),
        # Tokens of unequal lengths; 40 sequences in batches of 16.
        ("toy_classes", "pf_lstm"),
        ("toy_classes", "gru"),
        ("maze10", "pf_gru"),
    ],
)
def test_streamed_equals_resident(tmp_path, monkeypatch, name, model, steps):
    plan = toys.study(patch(name, model))
    places = toys.prepared_places(plan, tmp_path)
    resident = trained(plan, places, monkeypatch, None)
    other = Places(tmp_path / "streamed", places.prepared)
    same(resident, trained(plan, other, monkeypatch, steps))


def test_resume_inside_a_chunk(tmp_path, monkeypatch):
    plan = toys.study(patch("toy_regression", "pf_lstm"))
    places = toys.prepared_places(plan, tmp_path)
    resident = trained(plan, places, monkeypatch, None)
    other = Places(tmp_path / "streamed", places.prepared)
    calls = []

    def stop(self, request):
        calls.append(0)
        if len(calls) == 2:
            self.save()
            raise StoppedError(15, str(self.checkpoint_path))

    with monkeypatch.context() as patched:
        patched.setattr(BlockTrainer, "_pause", stop)
        with pytest.raises(StoppedError):
            trained(plan, other, monkeypatch, 3)
    same(resident, trained(plan, other, monkeypatch, 3))


def test_members_that_halving_drops(tmp_path, monkeypatch):
    plan = toys.study(
        {"study": {"variants": ["gru"]}, "training": {"max_epochs": 8, "patience": 8}},
        {"grid": {"learning_rate": [1e-5, 1e-3, 3e-3, 1e-2], "halving": True}},
    )
    places = toys.prepared_places(plan, tmp_path)
    resident = trained(plan, places, monkeypatch, None)
    with (resident / "history.csv").open(newline="") as source:
        epochs = [row["epoch"] for row in csv.DictReader(source)]
    assert {epochs.count(str(n)) for n in range(1, 9)} == {4, 2, 1}
    other = Places(tmp_path / "streamed", places.prepared)
    same(resident, trained(plan, other, monkeypatch, 2))


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("toy_classes", "gru_ensemble"),
        ("toy_regression", "lstm_ensemble"),
        ("toy_classes", "pf_gru"),
        ("maze10", "pf_lstm"),
    ],
)
def test_finals_with_bagged_members_and_samples(tmp_path, monkeypatch, name, model):
    """The test split, the selected member and the particles' sample, too."""
    plan = toys.study(patch(name, model))
    places = toys.prepared_places(plan, tmp_path)
    cell, folders = plan.cells[0], []
    for kind, steps in (("resident", None), ("streamed", 2)):
        choose(monkeypatch, steps)
        own = Places(tmp_path / kind, places.prepared)
        for block in cell.blocks:
            train_block(plan, block.id, own)
        select_cell(plan, cell.selection_id, own.results)
        run_final(plan, cell.final_id, own)
        folders.append(own.results / cell.final_id)
    same(*folders, tables=("members.csv", "history.csv", "test.csv"))
    samples = ["predictions.npz", *(["belief.npz"] if model.startswith("pf_") else [])]
    for sample in samples:
        with np.load(folders[0] / sample) as one, np.load(folders[1] / sample) as other:
            assert one.files == other.files
            assert all(np.array_equal(one[key], other[key]) for key in one.files)


def on_host(split):
    """A split as it was before it was moved to the device."""
    x, length, y, mask = (array.numpy() for array in split.arrays)
    return Split(x, length.astype(np.int32), y, mask, np.zeros(mask.shape, np.int64))


def streamed(problem, steps):
    return problem._replace(
        train=StreamedSplit(on_host(problem.train), CPU, steps),
        validation=StreamedSplit(on_host(problem.validation), CPU, steps),
    )


GRAPHED = [
    ("toy_regression", "lstm_bnrelu"),
    ("toy_regression", "pf_lstm"),
    ("toy_regression", "bayes_gru"),
    ("toy_classes", "pf_gru"),
    ("toy_classes", "lstm"),
]


@pytest.mark.parametrize(("name", "model"), GRAPHED)
@pytest.mark.parametrize("bagged", [False, True])
def test_captured_steps_read_the_chunk_where_it_lies(tmp_path, monkeypatch, name, model, bagged):
    """A graph a size and no more, whatever the chunk; members that stop, and last batches."""
    Poisoned.alive.clear()
    training = {"max_epochs": 5, "patience": 1, "bptt": 100}
    problem, plain, graphed = paths(tmp_path, name, model, training=training)
    resident = paths(tmp_path / "again", name, model, training=training)[2]
    problem = problem._replace(batch_size=12)
    if bagged:
        members = ensemble_members(SETTINGS[0], 1, 3, 1, name)
    else:
        members = search_members([*SETTINGS, Setting(0.0, 5.0, 0.0), DIVERGES], 1, name)
    first = run(problem, plain, members, tmp_path / "plain")
    Poisoned.alive.clear()
    run(problem, resident, members, tmp_path / "resident")
    Poisoned.alive.clear()
    places = set()
    receive = StreamedSplit._receive

    def watched(self, buffers, chunk):
        places.add((id(self), *(array.data_ptr() for array in buffers.chunk.arrays)))
        return receive(self, buffers, chunk)

    monkeypatch.setattr(StreamedSplit, "_receive", watched)
    second = run(streamed(problem, 2), graphed, members, tmp_path / "streamed")
    same_states(first, second)
    assert graphed.graph.startswith("captured: ")
    assert graphed.graph == resident.graph
    if not bagged:
        # Compacted, and captured anew.
        assert len({sum(row["epoch"] == n for row in second.history) for n in (1, 3)}) == 2
    # One place for each split.
    assert len(places) == 2


def test_running_out_of_memory_gives_the_buffers_up(tmp_path, monkeypatch):
    problem, path = world(tmp_path, "toy_regression", "gru")
    members = search_members([*SETTINGS, SETTINGS[0]], 1, "toy_regression")
    original, rows = PlainPath.forward, []

    def forward(self, parameters, *rest):
        if len(next(iter(parameters.values()))) > 2 and rest[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return original(self, parameters, *rest)

    monkeypatch.setattr(PlainPath, "forward", forward)
    resident = run(problem, path, members, tmp_path / "resident")
    held = streamed(problem, 1)
    receive = StreamedSplit._receive

    def watched(self, buffers, chunk):
        if self is held.train:
            rows.append(buffers.chunk.sequences)
        return receive(self, buffers, chunk)

    monkeypatch.setattr(StreamedSplit, "_receive", watched)
    second = run(held, path, members, tmp_path / "streamed")
    same_states(resident, second)
    assert second.notes == resident.notes
    assert len(second.notes) == 1
    assert set(rows) == {4 * 16, 2 * 16}
    # And at the end of the training, for the test.
    assert held.train._buffers is held.validation._buffers is None


def test_a_loop_that_ends_early_spoils_no_later_one(tmp_path):
    problem, _ = world(tmp_path, "toy_classes", "gru")
    split = StreamedSplit(on_host(problem.train), CPU, 2)
    rng = np.random.default_rng(1)
    for stop in (0, 1, 2, 3, 9):
        index = np.stack([rng.permutation(split.sequences) for _ in range(3)])
        seen = []
        for number, (chunk, rows) in enumerate(split.batches(index, 7, start=1)):
            if number == stop:
                break
            found = [array[rows.device] for array in chunk.arrays]
            expected = index[:, 7 * (number + 1) : 7 * (number + 2)]
            for array, value in zip(problem.train.arrays, found, strict=True):
                assert torch.equal(array[torch.from_numpy(expected)], value)
            assert np.array_equal(chunk.host_length[rows.host], found[1].numpy())
            seen.append(expected.shape[1])
        assert seen == [7, 7, 7, 7, 5][:stop]
        assert all(one.done() for one in split._gathering)


def test_a_loop_that_is_closed_late_leaves_the_next_one_alone(tmp_path):
    problem, _ = world(tmp_path, "toy_classes", "gru")
    split = StreamedSplit(on_host(problem.train), CPU, 1)
    index = np.arange(40)[None]
    first = split.batches(index, 8)
    next(first)
    found = []
    for chunk, rows in split.batches(index[:, ::-1], 8):
        first.close()
        found.append(chunk.y[rows.device].numpy())
    assert np.array_equal(np.concatenate(found, 1)[0], problem.train.y.numpy()[::-1])


def test_a_failure_while_gathering_is_raised_where_the_steps_are(tmp_path, monkeypatch):
    problem, _ = world(tmp_path, "toy_regression", "gru")
    split = StreamedSplit(on_host(problem.train), CPU, 1)

    def failing(arrays, rows, found):
        raise MemoryError("no memory")

    monkeypatch.setattr(streaming, "_select", failing)
    with pytest.raises(MemoryError, match="no memory"):
        list(split.batches(np.arange(40)[None], 8))
    monkeypatch.undo()
    assert len(list(split.batches(np.arange(40)[None], 8))) == 5


def test_a_chunk_has_a_step(tmp_path):
    problem, _ = world(tmp_path, "toy_regression", "gru")
    with pytest.raises(ValueError, match="at least one step, got 0"):
        StreamedSplit(on_host(problem.train), CPU, 0)
    split = StreamedSplit(on_host(problem.train), CPU, 3)
    assert list(split.batches(np.arange(40)[None], 8, start=5)) == []
