"""Batches of a split that stays on the host: the rows of the next few steps come in chunks.

Members have different orders, so a chunk is what the next ``steps`` steps of all members read. It
goes through three places::

    two pinned buffers on the host -> a staging buffer on the device -> the chunk that steps read
       (thread: gather)         (side stream)              (the training's own stream)

The chunk is one :class:`DeviceSplit` whose tensors stay where they are, so that steps, captured or
not, can't tell it from a resident split. Who may write where, and when:

- the chunk is written on the stream that steps are launched on, so behind the steps that read it;
- the side stream waits for that copy before it writes into the staging buffer again, and the
  training's stream waits for the side stream before it copies out of it;
- a pinned buffer is gathered into once the copy out of it is done. The training thread waits for
  that, with a chunk's steps still before the device; the gathering thread never speaks to it, so
  that nothing of it can fall into the capture of a graph.

On a CPU the same copies happen at once, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pfrnn.study.data.base import Split
from pfrnn.study.train.batches import DeviceSplit, Rows, split_bytes, to_device


class _Pinned(NamedTuple):
    """Where the host gathers a chunk."""

    arrays: tuple[Tensor, ...]
    sent: torch.cuda.Event | None  # the last copy out of it is done


class _Buffers(NamedTuple):
    """Memory of a split's chunks: two on the device, two on the host."""

    chunk: DeviceSplit
    staged: tuple[Tensor, ...]
    pinned: tuple[_Pinned, _Pinned]


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
        self._arrays = host.arrays
        self.host_length = host.host_length
        self.longest = host.longest
        self.device = device
        self._steps = steps
        self._row_bytes = split_bytes(split) // max(1, host.sequences)
        self._buffers: _Buffers | None = None
        self._gathering: list[Future[None]] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="pfrnn-stream")
        self._side = _side_stream(device)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.host_length)

    @property
    def fixed_bytes(self) -> int:
        """Memory on the device that doesn't grow with the members: none."""
        return 0

    def member_bytes(self, size: int) -> int:
        """Memory on the device for each member, in both buffers, at ``size`` sequences a step."""
        return 2 * min(self._steps * size, self.sequences) * self._row_bytes

    def release(self) -> None:
        """Free the buffers; the next batches make them anew, for as many members as there are."""
        self._settle()
        self._buffers = None

    def batches(
        self, index: npt.NDArray[np.int64], size: int, start: int = 0
    ) -> Iterator[tuple[DeviceSplit, Rows]]:
        """Steps of (M, size) sequences from step ``start``; the last one may be smaller.

        One loop over a split's batches at a time: a second one takes the buffers from the first.
        """
        width = size * self._steps
        index = index[:, start * size :]
        chunks = [index[:, i : i + width] for i in range(0, index.shape[1], width)]
        if not chunks:
            return
        self._settle()
        # Its own list: a loop before this one, closed late, leaves it alone.
        self._gathering = []
        buffers = self._reserve(chunks[0].size)
        try:
            for number in range(min(2, len(chunks))):
                self._gather(buffers, number, chunks[number])
            self._send(buffers, 0, chunks[0].size)
            for number, chunk in enumerate(chunks):
                rows = self._receive(buffers, chunk)
                if number + 1 < len(chunks):
                    self._send(buffers, number + 1, chunks[number + 1].size)
                if number + 2 < len(chunks):
                    self._gather(buffers, number + 2, chunks[number + 2])
                for first in range(0, chunk.shape[1], size):
                    yield buffers.chunk, rows.part(first, first + size)
        finally:
            # Also where a loop ends early: nobody writes into memory that is given up.
            self._settle()

    def _reserve(self, rows: int) -> _Buffers:
        """Make the buffers, unless they are large enough: captured steps read this memory."""
        if self._buffers is not None and self._buffers.chunk.sequences >= rows:
            return self._buffers
        self._buffers = None  # first, so that the old ones' memory can be used
        (x, length, y, mask), staged = (
            tuple(a.new_empty(rows, *a.shape[1:], device=self.device) for a in self._arrays)
            for _ in range(2)
        )
        cuda = self._side is not None
        pinned = [
            _Pinned(
                tuple(_on_host(a, rows, cuda) for a in self._arrays),
                torch.cuda.Event() if cuda else None,  # type: ignore[no-untyped-call]
            )
            for _ in range(2)
        ]
        chunk = DeviceSplit(x, length, y, mask, np.zeros(rows, np.int64), self.longest)
        self._buffers = _Buffers(chunk, staged, (pinned[0], pinned[1]))
        return self._buffers

    def _gather(self, buffers: _Buffers, number: int, chunk: npt.NDArray[np.int64]) -> None:
        """Start to gather a chunk's rows into its pinned buffer."""
        pinned = buffers.pinned[number % 2]
        if pinned.sent is not None:
            pinned.sent.synchronize()
        rows = torch.from_numpy(np.ascontiguousarray(chunk).reshape(-1))
        self._gathering.append(self._worker.submit(_select, self._arrays, rows, pinned.arrays))

    def _send(self, buffers: _Buffers, number: int, rows: int) -> None:
        """Copy a gathered chunk into the staging buffer, beside the steps of the one before."""
        self._gathering.pop(0).result()
        pinned = buffers.pinned[number % 2]
        if self._side is None or pinned.sent is None:
            _copy(buffers.staged, pinned.arrays, rows)
            return
        # For the copy out of the staging buffer, the last thing that was launched; at first, for
        # whoever had the buffer's memory before.
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            _copy(buffers.staged, pinned.arrays, rows)
            pinned.sent.record(self._side)

    def _receive(self, buffers: _Buffers, chunk: npt.NDArray[np.int64]) -> Rows:
        """Copy the staging buffer to where steps read, behind the steps of the chunk before."""
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)
        _copy(buffers.chunk.arrays, buffers.staged, chunk.size)
        buffers.chunk.host_length[: chunk.size] = self.host_length[chunk.reshape(-1)]
        # Numbers within the chunk, made on either side: nothing to copy.
        local = torch.arange(chunk.size, device=self.device).view(chunk.shape)
        return Rows(np.arange(chunk.size).reshape(chunk.shape), local)

    def _settle(self) -> None:
        """Wait for the gathering thread; let the training's stream wait for the side stream.

        So whoever is given the staging buffer's memory next writes behind the last copy into it.
        """
        wait(self._gathering)
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)


def _side_stream(device: torch.device) -> torch.cuda.Stream | None:
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _on_host(like: Tensor, rows: int, pinned: bool) -> Tensor:
    return like.new_empty(rows, *like.shape[1:], device="cpu", pin_memory=pinned)


def _select(arrays: tuple[Tensor, ...], rows: Tensor, found: tuple[Tensor, ...]) -> None:
    """Gather on the host; in the thread, and without a call to the device."""
    for array, buffer in zip(arrays, found, strict=True):
        torch.index_select(array, 0, rows, out=buffer[: len(rows)])


def _copy(targets: tuple[Tensor, ...], sources: tuple[Tensor, ...], rows: int) -> None:
    for target, source in zip(targets, sources, strict=True):
        target[:rows].copy_(source[:rows], non_blocking=True)
