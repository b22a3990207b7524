"""Batches as index gathers: the arrays lie on the device, each member has its own order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pfrnn.study.data.base import Split
from pfrnn.study.seeding import derive_seed
from pfrnn.study.train.members import Member


class Rows(NamedTuple):
    """Sequence numbers of a step, (M, N): on the host for the lengths, on the device to gather."""

    host: npt.NDArray[np.int64]
    device: Tensor


class DeviceSplit(NamedTuple):
    """A split on the device.

    Attributes:
        x: (N, T, D) float32 or (N, T) int32 tokens.
        length: (N,) int64.
        y: (N, T, C) float32 or (N,) int64.
        mask: (N, T) bool.
        host_length: lengths on the host, so that trimming a batch needs no synchronisation.
    """

    x: Tensor
    length: Tensor
    y: Tensor
    mask: Tensor
    host_length: npt.NDArray[np.int64]

    @property
    def device(self) -> torch.device:
        """Where steps are computed."""
        return self.x.device

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.host_length)

    def batches(self, index: npt.NDArray[np.int64], size: int, start: int = 0) -> Iterator[Rows]:
        """Yield steps of (M, size) sequences from step ``start``; the last one may be smaller.

        Args:
            index: (M, count), each member's order of the sequences.
            size: sequences a step.
            start: first step.
        """
        whole = rows_on(index, self.device)
        for first in range(start * size, index.shape[1], size):
            yield Rows(*(part[:, first : first + size] for part in whole))


def to_device(split: Split, device: torch.device) -> DeviceSplit:
    """Copy a split to the device, once."""
    return DeviceSplit(
        x=torch.as_tensor(split.x, device=device),
        length=torch.as_tensor(split.length, device=device).long(),
        y=torch.as_tensor(split.y, device=device),
        mask=torch.as_tensor(split.mask, device=device),
        host_length=np.asarray(split.length, np.int64),
    )


def rows_on(index: npt.NDArray[np.int64], device: torch.device) -> Rows:
    """Copy sequence numbers to the device, all steps of an epoch at once.

    Out of pinned memory, which torch keeps until the copy is done: a copy out of any other would
    wait for all that was launched before.
    """
    if device.type != "cuda":
        return Rows(index, torch.tensor(index, device=device))
    pinned = torch.from_numpy(np.ascontiguousarray(index)).pin_memory()
    return Rows(index, pinned.to(device, non_blocking=True))


class Cut(NamedTuple):
    """A batch's size, known on the host.

    Attributes:
        steps: time steps T of the batch's tensors.
        padded: whether steps must be marked as valid or not.
        lengths: longest valid length of each member's sequences, at most T.
        sequences: N.
    """

    steps: int
    padded: bool
    lengths: tuple[int, ...]
    sequences: int


def cut_of(split: DeviceSplit, rows: Rows, quantum: int = 1) -> Cut:
    """Cut a batch at its longest sequence, rounded up to a multiple of ``quantum``.

    The added steps are padding; there are never more steps than the split's longest sequence has.
    """
    host = split.host_length[rows.host]
    lengths = tuple(int(n) for n in host.max(1))
    steps = min(-(-max(lengths) // quantum) * quantum, int(split.host_length.max()))
    return Cut(steps, int(host.min()) < steps, lengths, host.shape[1])


class Batch(NamedTuple):
    """Sequences of one step, time first, members in between.

    Attributes:
        x: (T, M, N, D), or tokens (T, M, N).
        valid: (T, M, N) bool, False where a sequence has ended; None when none is padded.
        y: (T, M, N, C), or labels (M, N).
        mask: (T, M, N) bool, steps whose prediction counts.
    """

    x: Tensor
    valid: Tensor | None
    y: Tensor
    mask: Tensor


def gather(split: DeviceSplit, rows: Tensor, cut: Cut) -> Batch:
    """Gather sequences ``rows`` (M, N), on the device alone: nothing here waits for it."""
    steps = cut.steps
    # Members first in memory, so that a layer reads (M, T * N, D) without another copy.
    x = split.x[:, :steps][rows].transpose(1, 2).contiguous().transpose(0, 1)
    if split.y.dim() == 3:
        y = split.y[:, :steps][rows].permute(2, 0, 1, 3)
    else:
        y = split.y[rows]
    mask = split.mask[:, :steps][rows].permute(2, 0, 1)
    valid = None
    if cut.padded:
        time = torch.arange(steps, device=split.x.device)
        valid = time[:, None, None] < split.length[rows]
    return Batch(x, valid, y, mask)


def bootstrap_sample(seed: int, count: int) -> npt.NDArray[np.int64]:
    """Draw ``count`` of ``count`` sequences with replacement (Breiman 1996).

    A sequence is in the sample with probability 1 - (1 - 1/n)^n.
    """
    generator = torch.Generator().manual_seed(seed)
    sample: npt.NDArray[np.int64] = torch.randint(count, (count,), generator=generator).numpy()
    return sample


def epoch_order(member: Member, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """The member's order of training sequences in an epoch: a function of its seed and epoch."""
    generator = torch.Generator().manual_seed(derive_seed(member.order_seed, "epoch", epoch))
    order: npt.NDArray[np.int64] = torch.randperm(count, generator=generator).numpy()
    if member.bootstrap_seed is None:
        return order
    return bootstrap_sample(member.bootstrap_seed, count)[order]


def epoch_orders(members: Sequence[Member], epoch: int, count: int) -> npt.NDArray[np.int64]:
    """All members' orders in an epoch, (M, count)."""
    return np.stack([epoch_order(member, epoch, count) for member in members])
