"""Streaming on a GPU: every step reads its rows, however the copies and the steps are delayed."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from pfrnn.kernels.graph import CudaCapture
from pfrnn.study.data.base import Split
from pfrnn.study.files import read_json
from pfrnn.study.train import placement, streaming
from pfrnn.study.train.batches import rows_on, to_device
from pfrnn.study.train.block import train_block
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.members import search_members
from pfrnn.study.train.streaming import StreamedSplit
from pfrnn.study.variants import variant

from . import toys
from .test_population import SETTINGS, run, world
from .test_streaming import on_host

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")
# Clock cycles: some milliseconds.
LONG = 10_000_000


def numbered(count=4000, steps=16):
    """A split whose rows tell their numbers."""
    rows = np.arange(count)
    x = np.broadcast_to(rows[:, None, None], (count, steps, 3)).astype(np.float32)
    mask = (rows[:, None] + np.arange(steps)) % 2 == 0
    length = 1 + rows.astype(np.int32) % steps
    return Split(x.copy(), length, rows.astype(np.int64), mask, np.zeros((count, steps), np.int64))


def read(split, index, size, before_step, count):
    """What steps find, left on the device until the end."""
    found = []
    for number, (chunk, rows) in enumerate(split.batches(index, size)):
        before_step()
        found.append([array[rows.device] for array in chunk.arrays])
        if number + 1 == count:
            break
    return found


@pytest.mark.parametrize("slow", ["nothing", "steps", "copies", "both"])
@pytest.mark.parametrize("steps", [1, 3])
def test_every_step_reads_its_rows(monkeypatch, slow, steps):
    """Loops with other orders and members, of which one ends early."""
    copy = streaming._copy

    def slowly(targets, sources, rows):
        if slow in ("copies", "both") and sources[0].device.type == "cpu":
            torch.cuda._sleep(LONG)
        copy(targets, sources, rows)

    def step():
        if slow in ("steps", "both"):
            torch.cuda._sleep(LONG // 4)

    monkeypatch.setattr(streaming, "_copy", slowly)
    data = numbered()
    split, resident = StreamedSplit(data, CUDA, steps), to_device(data, CUDA)
    order = np.random.default_rng(3)
    seen = []
    for members, size, count in ((3, 300, None), (3, 300, 4), (2, 300, None), (4, 90, 7)):
        index = np.stack([order.permutation(len(data.length)) for _ in range(members)])
        seen.append((index, size, read(split, index, size, step, count)))
    split.release()
    # Whoever gets the memory now may write at once.
    spoiled = [torch.full((2**18,), -1.0, device=CUDA) for _ in range(64)]
    torch.cuda.synchronize()
    for index, size, found in seen:
        for number, arrays in enumerate(found):
            rows = torch.as_tensor(index[:, number * size : (number + 1) * size], device=CUDA)
            for array, value in zip(resident.arrays, arrays, strict=True):
                assert torch.equal(array[rows], value), (number, steps, slow)
    assert all(bool(value.eq(-1).all()) for value in spoiled)


def test_a_wait_that_is_left_out_shows(monkeypatch):
    """The delays are long enough to see a race: steps read old rows without the training's wait."""
    copy = streaming._copy

    def slowly(targets, sources, rows):
        if sources[0].device.type == "cpu":
            torch.cuda._sleep(LONG)
        copy(targets, sources, rows)

    split = StreamedSplit(numbered(), CUDA, 1)
    monkeypatch.setattr(streaming, "_copy", slowly)
    side = split._side
    wait_stream = torch.cuda.Stream.wait_stream

    def forgetful(self, other):
        if self == side:
            wait_stream(self, other)

    monkeypatch.setattr(torch.cuda.Stream, "wait_stream", forgetful)
    index = np.arange(4000)[None]
    found = read(split, index, 300, lambda: None, None)
    torch.cuda.synchronize()
    monkeypatch.undo()
    wrong = [
        number
        for number, (_, _, label, _) in enumerate(found)
        if not np.array_equal(label.cpu().numpy(), index[:, number * 300 : (number + 1) * 300])
    ]
    assert wrong


def test_a_captured_reader_finds_each_chunk():
    """A graph that gathers is replayed over all chunks, from memory that stays."""
    data = numbered()
    split = StreamedSplit(data, CUDA, 2)
    index = np.random.default_rng(4).permutation(4000)[None]
    total = torch.zeros(1, 250, dtype=torch.int64, device=CUDA)
    numbers = torch.zeros(1, 250, dtype=torch.int64, device=CUDA)
    capture, found = None, []
    for number, (chunk, rows) in enumerate(split.batches(index, 250)):
        numbers.copy_(rows.device)

        def gather(chunk=chunk):
            total.copy_(chunk.y[numbers])

        if number == 0:
            gather()
        elif number == 1:
            # While the next chunk is on its way.
            capture = CudaCapture(gather, CudaCapture.pool())
        if capture is not None:
            capture.replay()
        found.append(total.clone())
    assert np.array_equal(torch.cat(found, 1).cpu().numpy(), index)


def test_orders_go_to_the_device_without_a_wait():
    index = np.random.default_rng(5).integers(0, 100, (12, 5000))
    # Pinned memory is made once, which may wait, and used again.
    torch.cuda._sleep(5 * LONG)
    for _ in range(4):
        rows_on(index, CUDA)
    torch.cuda.synchronize()
    torch.cuda._sleep(50 * LONG)
    event = torch.cuda.Event()
    event.record()
    rows = [rows_on(index + number, CUDA) for number in range(3)]
    waited = event.query()
    assert not waited
    for number, one in enumerate(rows):
        assert np.array_equal(one.device.cpu().numpy(), index + number)


@pytest.mark.parametrize("graphs", ["0", "1"])
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("toy_regression", "lstm"),
        ("toy_regression", "bayes_gru"),
        ("toy_classes", "gru"),
        ("toy_classes", "pf_lstm"),
        ("maze10", "pf_gru"),
    ],
)
def test_streamed_training_is_the_resident_one(tmp_path, monkeypatch, name, model, graphs):
    """To rounding (sums may be unordered, captures may choose other products).

    A member stops early, so that the population is compacted within the training.
    """
    monkeypatch.setenv("PFRNN_GRAPHS", graphs)
    training = {"max_epochs": 4, "patience": 2, "bptt": 100}
    settings = [SETTINGS[0]._replace(learning_rate=0.0), *SETTINGS[:2]]
    ends, paths = [], []
    for kind in ("resident", "streamed"):
        problem, plain = world(tmp_path / kind, name, model, training=training)
        hosts = [on_host(problem.train), on_host(problem.validation)]
        opened = [
            to_device(host, CUDA) if kind == "resident" else StreamedSplit(host, CUDA, 2)
            for host in hosts
        ]
        problem = problem._replace(train=opened[0], validation=opened[1], batch_size=7)
        count = problem.train.sequences
        paths.append(choose_path(plain.spec, variant(model), problem.config, count, CUDA))
        members = search_members(settings, 1, name)
        ends.append(run(problem, paths[-1], members, tmp_path / kind / "run"))
        gc.collect()
    for row, other in zip(ends[0].history, ends[1].history, strict=True):
        for key in ("train_loss", "val_loss"):
            # As in the comparison of captured and launched steps.
            assert row[key] == pytest.approx(other[key], rel=2e-2), (key, row["epoch"])
    assert paths[0].graph == paths[1].graph
    if graphs == "1":
        assert isinstance(paths[1], GraphedPath)
        assert paths[1].graph.startswith("captured: "), paths[1].graph


def test_a_block_that_does_not_fit_is_streamed(tmp_path, monkeypatch):
    """Chosen by size: the limit leaves room for members, but not for the data beside them."""
    monkeypatch.delenv(placement.VARIABLE, raising=False)
    plan = toys.study({"study": {"datasets": ["toy_regression"], "variants": ["pf_gru"]}})
    places = toys.prepared_places(plan, tmp_path)

    def little(data, members, size, member, device):
        total = sum(map(placement.split_bytes, data.values()))
        monkeypatch.setenv("PFRNN_MEMORY_LIMIT", repr((total + member - 1) / 2**30))
        found = placement.place(data, members, size, member, device)
        monkeypatch.delenv("PFRNN_MEMORY_LIMIT")
        return found

    monkeypatch.setattr("pfrnn.study.train.job.place", little)
    train_block(plan, plan.blocks[0].id, places, "cuda")
    record = read_json(places.results / plan.blocks[0].id / "run.json")
    assert record["data"].startswith("streamed in chunks of ")
