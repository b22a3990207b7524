"""Batches of a split that stays on the host: the rows of the next few steps come in chunks.

Members have different orders, so a chunk is what the next ``steps`` steps of all members read,
gathered by a background thread. Two slots of fixed device memory take turns: while the device
works on one, the other is filled. A chunk looks like any other :class:`DeviceSplit`, so a compute
path, captured or not, can't tell. On CUDA the copies run on a stream of their own from pinned
memory and streams wait for each other by events; the training thread never waits for the device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pfrnn.data.base import Split
from pfrnn.errors import ConfigError
from pfrnn.training.batches import DeviceSplit, Rows, rows_on, to_device

# Steps of a chunk; set, the data are streamed instead of copied to the device as a whole.
VARIABLE = "PFRNN_STREAM"


def open_split(split: Split, device: torch.device) -> DeviceSplit | StreamedSplit:
    """Copy a split to the device, or keep it on the host where ``PFRNN_STREAM`` asks for it.

    Raises:
        ConfigError: PFRNN_STREAM is no positive whole number.
    """
    asked = os.environ.get(VARIABLE)
    if asked is None:
        return to_device(split, device)
    if not asked.isdecimal() or int(asked) < 1:
        raise ConfigError(f"{VARIABLE}: expected steps of a chunk, at least 1, got {asked!r}")
    return StreamedSplit(split, device, int(asked))


class _Slot(NamedTuple):
    """One of the two chunk buffers: what the device reads, and what the host fills."""

    device: DeviceSplit
    host: tuple[Tensor, ...]
    events: tuple[torch.cuda.Event, torch.cuda.Event] | None  # copied; no longer read


class StreamedSplit:
    """A split on the host with the batches of :class:`DeviceSplit`.

    Args:
        split: the arrays.
        device: where steps are computed.
        steps: steps of a chunk, at least 1.
    """

    def __init__(self, split: Split, device: torch.device, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"expected chunks of at least one step, got {steps}")
        host = to_device(split, torch.device("cpu"))
        self._arrays = (host.x, host.length, host.y, host.mask)
        self.host_length = host.host_length
        self.longest = host.longest
        self.device = device
        self._steps = steps
        self._slots: list[_Slot] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="pfrnn-stream")
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @property
    def where(self) -> str:
        """Where the arrays are, and why, for run.json."""
        size = sum(array.nbytes for array in self._arrays) / 2**20
        return (
            f"streamed: {VARIABLE} asks for chunks of {self._steps} steps; "
            f"{size:.3g} MiB of training data stay on the host"
        )

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.host_length)

    def batches(
        self, index: npt.NDArray[np.int64], size: int, start: int = 0
    ) -> Iterator[tuple[DeviceSplit, Rows]]:
        """Steps of (M, size) sequences from step ``start``; the last one may be smaller."""
        width = size * self._steps
        index = index[:, start * size :]
        chunks = [index[:, i : i + width] for i in range(0, index.shape[1], width)]
        if not chunks:
            return
        self._reserve(chunks[0].size)
        filling: list[Future[None]] = []
        try:
            for number, chunk in enumerate(chunks):
                while len(filling) < min(number + 2, len(chunks)):
                    following = len(filling)
                    slot = self._slots[following % 2]
                    filling.append(self._worker.submit(self._fill, slot, chunks[following]))
                filling[number].result()
                slot = self._slots[number % 2]
                if slot.events is not None:
                    torch.cuda.current_stream(self.device).wait_event(slot.events[0])
                local = rows_on(np.arange(chunk.size).reshape(chunk.shape), self.device)
                for first in range(0, chunk.shape[1], size):
                    yield slot.device, local.part(first, first + size)
                if slot.events is not None:
                    slot.events[1].record(torch.cuda.current_stream(self.device))
        finally:
            # A loop that ended early leaves no thread writing into a slot.
            wait(filling)
            for slot in self._slots:
                if slot.events is not None:
                    torch.cuda.current_stream(self.device).wait_event(slot.events[0])
                    slot.events[1].record(torch.cuda.current_stream(self.device))

    def _reserve(self, rows: int) -> None:
        """Make both slots, unless they are large enough: captured steps read this memory."""
        if self._slots and len(self._slots[0].device.host_length) >= rows:
            return
        cuda = self._stream is not None
        self._slots = []
        for _ in range(2):
            made = [a.new_empty(rows, *a.shape[1:], device=self.device) for a in self._arrays]
            lengths = np.zeros(rows, np.int64)
            chunk = DeviceSplit(made[0], made[1], made[2], made[3], lengths, self.longest)
            host = tuple(torch.empty_like(a, device="cpu", pin_memory=cuda) for a in made)
            events = (torch.cuda.Event(), torch.cuda.Event()) if cuda else None  # type: ignore[no-untyped-call]
            if events is not None:
                # The memory may have been another tensor's a moment ago.
                events[1].record(torch.cuda.current_stream(self.device))
            self._slots.append(_Slot(chunk, host if cuda else tuple(made), events))

    def _fill(self, slot: _Slot, chunk: npt.NDArray[np.int64]) -> None:
        """Gather on the host and send; in the background thread."""
        rows = chunk.reshape(-1)
        if slot.events is not None:
            slot.events[0].synchronize()  # the last copy out of the pinned memory
        index = torch.from_numpy(np.ascontiguousarray(rows))
        for array, buffer in zip(self._arrays, slot.host, strict=True):
            torch.index_select(array, 0, index, out=buffer[: len(rows)])
        slot.device.host_length[: len(rows)] = self.host_length[rows]
        if slot.events is None or self._stream is None:
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(slot.events[1])
            found = slot.device
            for target, buffer in zip(
                (found.x, found.length, found.y, found.mask), slot.host, strict=True
            ):
                target[: len(rows)].copy_(buffer[: len(rows)], non_blocking=True)
            slot.events[0].record(self._stream)
