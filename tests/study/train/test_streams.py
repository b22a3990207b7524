"""Nobody writes where another still reads: streaming on a device whose streams run as they like.

A stand-in for CUDA's streams and events on the CPU. What is launched is put off; each stream does
its work in order, and waits only for what it was told to wait for. Between streams every order is
tried: as late as possible, one stream always first, at random. Each wait of the code is left out
once, which must show.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque

import numpy as np
import pytest
import torch

from pfrnn.study.train import streaming
from pfrnn.study.train.streaming import StreamedSplit

from .test_population import world
from .test_streaming import on_host

CPU = torch.device("cpu")
ORDERS = ["late", "main first", "side first", *range(6)]


class Event:
    """Done when the stream has reached its last record."""

    def __init__(self, device):
        self.device = device
        self.mark = None

    def record(self, stream):
        self.mark = Mark(stream)
        stream.launch(self.mark)

    def synchronize(self):
        assert threading.current_thread() is threading.main_thread()
        if self.mark is not None and self.device.broken != "host waits":
            self.device.finish(self.mark)
            self.device.waited(self.mark)


class Mark:
    """A place in a stream."""

    def __init__(self, stream):
        self.stream = stream
        self.done = False


class Stream:
    def __init__(self, device, name):
        self.device, self.name = device, name
        self.work = deque()

    def launch(self, item):
        self.work.append(item)
        self.device.go_on()

    def wait_stream(self, other):
        mark = Mark(other)
        other.launch(mark)
        if self.device.broken != f"{self.name} waits":
            self.launch(("wait", mark))

    @property
    def ready(self):
        return bool(self.work) and not (
            isinstance(self.work[0], tuple) and not self.work[0][1].done
        )

    def run_one(self):
        item = self.work.popleft()
        if isinstance(item, Mark):
            item.done = True
        elif callable(item):
            item()


class Device:
    """Two streams, and who runs when."""

    def __init__(self, order, broken=None):
        self.order, self.broken = order, broken
        self.random = np.random.default_rng(order if isinstance(order, int) else 0)
        self.main, self.side = Stream(self, "main"), Stream(self, "side")
        self.current = self.main
        self.left = []

    def choose(self, streams):
        if self.order in ("late", "main first"):
            return streams[0]
        return streams[-1 if self.order == "side first" else self.random.integers(len(streams))]

    def go_on(self):
        """After a launch: run as much as the order has it."""
        while True:
            ready = [stream for stream in (self.main, self.side) if stream.ready]
            if self.order == "main first":
                ready = [stream for stream in ready if stream is self.main]
            elif self.order == "side first":
                ready = [stream for stream in ready if stream is self.side]
            elif self.order == "late" or self.random.random() < 0.4:
                return
            if not ready:
                return
            self.choose(ready).run_one()

    def finish(self, mark):
        """Run what a mark needs, and no more."""
        while not mark.done:
            stream = mark.stream
            while not stream.ready:
                stream = stream.work[0][1].stream
            stream.run_one()

    def waited(self, mark):
        """Note the steps that the device still has to do when the host goes on."""
        self.left.append(sum(getattr(item, "step", False) for item in self.main.work))

    def drain(self):
        while streams := [stream for stream in (self.main, self.side) if stream.ready]:
            self.choose(streams).run_one()
        assert not self.main.work
        assert not self.side.work

    def step(self, work):
        def item():
            work()

        item.step = True
        self.main.launch(item)

    @contextlib.contextmanager
    def on(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before


def simulated(monkeypatch, order, broken=None):
    device = Device(order, broken)
    copy, on_cpu = streaming._copy, streaming._on_host

    def later(targets, sources, rows):
        device.current.launch(lambda: copy(targets, sources, rows))

    monkeypatch.setattr(streaming, "_copy", later)
    monkeypatch.setattr(streaming, "_side_stream", lambda _: device.side)
    monkeypatch.setattr(streaming, "_on_host", lambda like, rows, pinned: on_cpu(like, rows, False))
    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(device))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: device.current)
    monkeypatch.setattr(torch.cuda, "stream", device.on)
    return device


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return world(tmp_path_factory.mktemp("data"), "toy_classes", "gru")[0].train


def wrong_steps(device, train, size, steps, stops=(None, 3, None)):
    """Numbers of steps that read other rows than theirs, over loops of which some end early."""
    split = StreamedSplit(on_host(train), CPU, steps)
    seen = []

    def read(chunk, rows, expected):
        found = [array[rows] for array in chunk.arrays]
        right = [array[expected] for array in train.arrays]
        seen.append(all(torch.equal(a, b) for a, b in zip(found, right, strict=True)))

    order = np.random.default_rng(5)
    launched = 0
    for members, stop in zip((3, 2, 3), stops, strict=True):
        index = np.stack([order.permutation(split.sequences) for _ in range(members)])
        for number, (chunk, rows) in enumerate(split.batches(index, size)):
            part = torch.from_numpy(index[:, number * size : (number + 1) * size])
            device.step(lambda c=chunk, r=rows.device, p=part: read(c, r, p))
            launched += 1
            assert np.array_equal(chunk.host_length[rows.host], train.host_length[part.numpy()])
            if number == stop:
                break
    device.drain()
    assert len(seen) == launched
    return [number for number, right in enumerate(seen) if not right]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("size", "steps"), [(3, 1), (7, 2), (3, 4), (40, 1), (16, 9)])
def test_every_step_reads_its_rows_in_whatever_order_streams_run(
    monkeypatch, train, order, size, steps
):
    device = simulated(monkeypatch, order)
    assert wrong_steps(device, train, size, steps) == []


@pytest.mark.parametrize(
    ("broken", "order"),
    [("main waits", "main first"), ("side waits", "side first"), ("host waits", "late")],
)
def test_each_wait_is_needed(monkeypatch, train, broken, order):
    device = simulated(monkeypatch, order, broken)
    assert wrong_steps(device, train, 3, 2) != []


def test_a_copy_to_the_chunk_beside_the_steps_would_be_seen(monkeypatch, train):
    """Mutant: the chunk is written on the side stream."""
    device = simulated(monkeypatch, "side first")
    receive = StreamedSplit._receive

    def beside(self, buffers, chunk):
        with device.on(device.side):
            return receive(self, buffers, chunk)

    monkeypatch.setattr(StreamedSplit, "_receive", beside)
    assert wrong_steps(device, train, 3, 2) != []


def test_the_host_goes_on_while_the_device_has_steps_to_do(monkeypatch, train):
    """However late the device is: when the host waits, a chunk's steps are still to be done."""
    device = simulated(monkeypatch, "late")
    assert wrong_steps(device, train, 3, 2, (None,) * 3) == []
    # 7 chunks of 2 steps in the first loop; the host waits from the third on, at the start of
    # which (all that can be launched for the first chunk) nothing is before the device yet.
    assert device.left[:5] == [0, 2, 2, 2, 2]


@pytest.mark.parametrize("settles", [True, False])
def test_memory_that_is_given_up_is_written_no_more(monkeypatch, train, settles):
    """Its next owner writes on the training's stream; a copy that still comes would spoil that."""
    device = simulated(monkeypatch, "main first")
    split = StreamedSplit(on_host(train), CPU, 1)
    if not settles:
        monkeypatch.setattr(split, "_settle", lambda: streaming.wait(split._gathering))
    for number, (_chunk, _rows) in enumerate(split.batches(np.arange(40)[None], 4)):
        if number == 2:
            break
    staged = split._buffers.staged
    split.release()
    device.main.launch(lambda: [array.fill_(1) for array in staged])
    device.drain()
    assert all(bool((array == 1).all()) for array in staged) == settles
