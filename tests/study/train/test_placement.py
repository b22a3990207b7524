"""Where the data lie: resident where they fit, streamed in chunks that fit, or refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from pfrnn.errors import ConfigError
from pfrnn.study.data.base import Split
from pfrnn.study.files import read_json
from pfrnn.study.train import footprint, placement
from pfrnn.study.train.batches import DeviceSplit, split_bytes, to_device
from pfrnn.study.train.block import train_block
from pfrnn.study.train.evaluate import EVALUATION_BATCH
from pfrnn.study.train.placement import place, step_bytes
from pfrnn.study.train.streaming import StreamedSplit
from pfrnn.study.train.trainer import BlockTrainer

from . import toys
from .test_population import SETTINGS, run, search_members, world
from .test_streaming import on_host, same

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
GIB = 2**30


@pytest.fixture(autouse=True)
def _nothing_asked(monkeypatch):
    monkeypatch.delenv("PFRNN_MEMORY_LIMIT", raising=False)
    monkeypatch.delenv(placement.VARIABLE, raising=False)


def splits(train=10_000, others=500, steps=50, inputs=8):
    """Splits of a size, without the memory."""

    def split(count):
        return Split(
            np.broadcast_to(np.float32(0), (count, steps, inputs)),
            np.full(count, steps, np.int32),
            np.broadcast_to(np.float32(0), (count, steps, 2)),
            np.broadcast_to(np.True_, (count, steps)),
            np.broadcast_to(np.int64(0), (count, steps)),
        )

    return {"train": split(train), "validation": split(others), "test": split(others)}


TOTAL = 11_000 * (50 * (8 + 2) * 4 + 50 + 8)
ROW = TOTAL // 11_000
EACH = 2 * (64 + EVALUATION_BATCH) * ROW


def free(monkeypatch, size):
    monkeypatch.setattr(footprint, "room", lambda device, held=0: size)


def test_a_splits_bytes_are_those_of_its_tensors(tmp_path):
    for name in ("toy_regression", "toy_classes"):
        problem, _ = world(tmp_path / name, name, "gru")
        for split in (problem.train, problem.validation):
            assert split_bytes(on_host(split)) == split.fixed_bytes
            assert split.fixed_bytes == sum(x.untyped_storage().nbytes() for x in split.arrays)
    assert sum(map(split_bytes, splits().values())) == TOTAL


def test_data_are_resident_where_they_fit_beside_one_member(monkeypatch):
    free(monkeypatch, TOTAL + 10_000_000)
    found = place(splits(), 36, 64, 10_000_000, CUDA)
    assert found.steps is None
    assert found.reason == "resident: 21.6 MiB of data beside members of about 9.54 MiB fit"
    free(monkeypatch, TOTAL + 9_999_999)
    assert place(splits(), 36, 64, 10_000_000, CUDA).steps is not None


def test_a_chunk_takes_half_of_what_members_leave(monkeypatch):
    member = 100_000
    available = 12 * member + 12 * EACH * 2
    assert available < TOTAL
    free(monkeypatch, available)
    found = place(splits(), 12, 64, member, CUDA)
    assert found.steps == 1
    assert found.reason == (
        "streamed in chunks of 1 steps: 21.6 MiB of data, more than 19.2 MiB with one member"
    )
    free(monkeypatch, 4 * member + 4 * EACH * 6)
    assert place(splits(), 4, 64, member, CUDA).steps == 3
    # Members that leave nothing: a quarter of the room, and groups.
    free(monkeypatch, 16 * EACH)
    assert place(splits(), 4, 64, 10 * EACH, CUDA).steps == 1
    assert place(splits(), 1, 64, 16 * EACH, CUDA).steps == 4


@pytest.mark.parametrize("members", [1, 5, 36, 500])
@pytest.mark.parametrize("member", [1000, 10**6, 10**8])
@pytest.mark.parametrize("available", [10**6, 10**7, 10**8, 10**10])
def test_what_is_chosen_fits(monkeypatch, members, member, available):
    """A group of the population and its buffers, unless one member is too much by its estimate."""
    data = splits(train=10**7, others=5000)
    free(monkeypatch, available)
    if available < EACH:
        with pytest.raises(ConfigError, match="must be streamed"):
            place(data, members, 64, member, CUDA)
        return
    steps = place(data, members, 64, member, CUDA).steps
    each = member + steps * EACH
    largest = footprint.group_sizes(members, each, available)[0]
    assert steps * EACH * largest <= max(placement._ENOUGH, EACH * largest)
    if member + EACH <= available * 3 / 4:
        assert largest * each <= available
    if members * (member + EACH) <= available:
        assert largest == members


def test_what_cannot_even_be_streamed_is_refused(monkeypatch):
    free(monkeypatch, EACH - 1)
    expected = (
        "cuda: 21.6 MiB of data don't fit beside a member and must be streamed, but two buffers of "
        "1 x 64 sequences take 772 KiB and 772 KiB are free; choose a smaller batch_size"
    )
    with pytest.raises(ConfigError, match=re.escape(expected)):
        place(splits(), 3, 64, 1000, CUDA)
    free(monkeypatch, EACH)
    assert place(splits(), 3, 64, 1000, CUDA).steps == 1
    monkeypatch.setenv(placement.VARIABLE, "2")
    with pytest.raises(ConfigError, match="choose a smaller PFRNN_STREAM"):
        place(splits(), 3, 64, 1000, CUDA)


def test_a_cpu_keeps_its_data_unless_asked(monkeypatch):
    free(monkeypatch, 1)
    found = place(splits(), 3, 64, 1000, CPU)
    assert (found.steps, found.reason) == (None, "resident: a CPU computes where the data are")
    free(monkeypatch, None)
    assert place(splits(), 3, 64, 1000, torch.device("meta")).steps is None
    monkeypatch.setenv(placement.VARIABLE, "7")
    found = place(splits(), 3, 64, 1000, CPU)
    assert found.steps == 7
    assert found.reason == "streamed in chunks of 7 steps: 21.6 MiB of data, PFRNN_STREAM=7"


@pytest.mark.parametrize("wrong", ["0", "-1", "many", "1.5", ""])
def test_a_wrong_setting_is_refused(monkeypatch, wrong):
    monkeypatch.setenv(placement.VARIABLE, wrong)
    with pytest.raises(ConfigError, match="PFRNN_STREAM: expected steps of a chunk"):
        place(splits(), 3, 64, 1000, CPU)


def test_an_opened_split_is_where_it_was_said_to_be(monkeypatch, tmp_path):
    problem, _ = world(tmp_path, "toy_classes", "gru")
    host = on_host(problem.train)
    resident = place(dict.fromkeys(splits(), host), 3, 16, 1000, CPU).open(host)
    assert isinstance(resident, DeviceSplit)
    assert (resident.fixed_bytes, resident.member_bytes(16)) == (split_bytes(host), 0)
    monkeypatch.setenv(placement.VARIABLE, "2")
    streamed = place(dict.fromkeys(splits(), host), 3, 16, 1000, CPU).open(host)
    assert isinstance(streamed, StreamedSplit)
    # What is estimated for three members is what the buffers take on the device.
    next(streamed.batches(np.zeros((3, 40), np.int64), 16))
    held = (*streamed._buffers.chunk.arrays, *streamed._buffers.staged)
    assert streamed.fixed_bytes == 0
    assert 3 * streamed.member_bytes(16) == sum(x.untyped_storage().nbytes() for x in held)
    # No chunk is longer than an epoch.
    assert streamed.member_bytes(1000) == 2 * split_bytes(host)


def test_buffers_count_when_a_population_is_split(tmp_path, monkeypatch):
    """Members that would fit with resident data take more than there is with their buffers."""
    problem, path = world(tmp_path, "toy_regression", "gru")
    members = search_members([*SETTINGS, SETTINGS[0]], 1, "toy_regression")
    count = sum(value.numel() for value in path.build().parameters())
    each = step_bytes(path, 16, 6, count)
    data = problem.train.fixed_bytes + problem.validation.fixed_bytes
    monkeypatch.setenv("PFRNN_MEMORY_LIMIT", repr((4.01 * each + data) / GIB))
    assert run(problem, path, members, tmp_path / "resident").notes == []
    # Data that lie on the device are a part of the limit.
    monkeypatch.setenv("PFRNN_MEMORY_LIMIT", repr((3.99 * each + data) / GIB))
    (note,) = run(problem, path, members, tmp_path / "less").notes
    assert note.endswith("trained in 2 groups")
    streamed = problem._replace(
        train=StreamedSplit(on_host(problem.train), CPU, 2),
        validation=StreamedSplit(on_host(problem.validation), CPU, 2),
    )
    buffers = streamed.train.member_bytes(16) + streamed.validation.member_bytes(EVALUATION_BATCH)
    for limit, notes in ((4.01 * (each + buffers), 0), (3.99 * (each + buffers), 1)):
        monkeypatch.setenv("PFRNN_MEMORY_LIMIT", repr(limit / GIB))
        trainer = BlockTrainer(streamed, path, members, tmp_path / str(limit), "test")
        assert len(trainer.state.notes) == notes
        assert len(trainer.state.groups) == 1 + notes


def test_a_block_chooses_by_size_says_so_and_has_the_same_numbers(tmp_path, monkeypatch, caplog):
    """On a CPU that passes for another device, and has too little memory for all data."""
    plan = toys.study({"study": {"datasets": ["toy_classes"], "variants": ["pf_gru"]}})
    places = toys.prepared_places(plan, tmp_path)
    block = plan.blocks[0].id
    train_block(plan, block, places)
    assert read_json(places.results / block / "run.json")["data"].startswith("resident: a CPU")
    again = places._replace(results=tmp_path / "again")
    sizes = []

    def elsewhere(data, members, size, member, device):
        total = sum(map(split_bytes, data.values()))
        monkeypatch.setenv("PFRNN_MEMORY_LIMIT", repr((total + member - 1) / GIB))
        found = place(data, members, size, member, CUDA)
        # Two groups would round differently.
        monkeypatch.delenv("PFRNN_MEMORY_LIMIT")
        sizes.append(found.steps)
        return found._replace(device=device)

    monkeypatch.setattr("pfrnn.study.train.job.place", elsewhere)
    train_block(plan, block, again)
    record = read_json(again.results / block / "run.json")
    assert sizes[0] >= 1
    assert record["data"].startswith(f"streamed in chunks of {sizes[0]} steps: ")
    assert f"data {record['data']}" in caplog.text
    same(places.results / block, again.results / block, tables=())


def test_resident_data_are_copied_as_they_are(tmp_path):
    problem, _ = world(tmp_path, "toy_classes", "gru")
    again = to_device(on_host(problem.train), CPU)
    for one, other in zip(again.arrays, problem.train.arrays, strict=True):
        assert torch.equal(one, other)
