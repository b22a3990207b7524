"""Where a set's arrays lie: in the device's memory where they fit, else streamed to it.

Resident data are read by index, which nothing beats. They fit when all splits and one member's
training step do; the population is split into groups then, as it would be for less memory
(:mod:`pfrnn.study.train.footprint`). Where data are streamed, each member has buffers of its own
rows, two on the device, and they are part of what a member needs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from pfrnn.errors import ConfigError
from pfrnn.study.data.base import Split
from pfrnn.study.train import footprint
from pfrnn.study.train.batches import DeviceSplit, split_bytes, to_device
from pfrnn.study.train.contract import ComputePath
from pfrnn.study.train.evaluate import EVALUATION_BATCH
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.streaming import StreamedSplit

# Steps of a chunk; set, the data are streamed wherever they would fit.
VARIABLE = "PFRNN_STREAM"
# Both buffers of a population: more hides no more of a copy's fixed costs, and the host pins as
# much again.
_ENOUGH = 2**29


class Placement(NamedTuple):
    """What was decided for all splits of a set.

    Attributes:
        device: where steps are computed.
        steps: steps of a chunk; None where data are resident.
        reason: for the log and run.json.
    """

    device: torch.device
    steps: int | None
    reason: str

    def open(self, split: Split) -> DeviceSplit | StreamedSplit:
        """Copy a split to the device, or keep it on the host and stream it."""
        if self.steps is None:
            return to_device(split, self.device)
        return StreamedSplit(split, self.device, self.steps)


def step_bytes(path: ComputePath, sequences: int, steps: int, parameters: int) -> int:
    """Estimate the peak memory of one member's training step on a path, without its data.

    Args:
        path: computes the steps.
        sequences: N of a batch.
        steps: T of the longest batch.
        parameters: trainable numbers of a member.
    """
    graphs = isinstance(path, GraphedPath)
    return footprint.member_bytes(path.spec, sequences, steps, parameters, path.name, graphs)


def place(
    splits: Mapping[str, Split], members: int, size: int, member: int, device: torch.device
) -> Placement:
    """Choose where a set's arrays lie, before any is copied.

    On a CPU they are where they are: resident. ``PFRNN_STREAM=C`` streams them on any device, in
    chunks of C steps.

    Args:
        splits: train, validation and test.
        members: of the whole population.
        size: sequences a training step.
        member: bytes of one member's step, :func:`step_bytes`.
        device: where steps are computed.

    Raises:
        ConfigError: the data must be streamed and not even the buffers of one member fit; or
            PFRNN_STREAM is no positive whole number.
    """
    asked = _asked()
    total = sum(split_bytes(split) for split in splits.values())
    available = footprint.room(device)
    if asked is None:
        if device.type == "cpu":
            return Placement(device, None, "resident: a CPU computes where the data are")
        if available is None:
            return Placement(device, None, f"resident: {device.type} tells no free memory")
        if total + member <= available:
            why = f"resident: {_size(total)} of data beside members of about {_size(member)} fit"
            return Placement(device, None, why)
    # Of one member: two buffers of a batch.
    each = 2 * (
        _rows_bytes(splits["train"], size) + _rows_bytes(splits["validation"], EVALUATION_BATCH)
    )
    steps = asked or _chunk(available or 0, members, member, each)
    if available is not None and steps * each > available:
        smaller = VARIABLE if asked and asked > 1 else "batch_size"
        raise ConfigError(
            f"{device}: {_size(total)} of data don't fit beside a member and must be streamed, but "
            f"two buffers of {steps} x {size} sequences take {_size(steps * each)} and "
            f"{_size(available)} are free; choose a smaller {smaller}, free memory on the device, "
            "or use --device cpu"
        )
    why = f"{VARIABLE}={asked}" if asked else f"more than {_size(available or 0)} with one member"
    return Placement(
        device, steps, f"streamed in chunks of {steps} steps: {_size(total)} of data, {why}"
    )


def _asked() -> int | None:
    asked = os.environ.get(VARIABLE)
    if asked is None:
        return None
    if not asked.isdecimal() or int(asked) < 1:
        raise ConfigError(f"{VARIABLE}: expected steps of a chunk, at least 1, got {asked!r}")
    return int(asked)


def _rows_bytes(split: Split, size: int) -> int:
    """A batch's rows of a split."""
    count = len(split.length)
    return min(size, count) * split_bytes(split) // max(1, count)


def _chunk(available: int, members: int, member: int, each: int) -> int:
    """Steps of a chunk: half of what all members leave, a quarter of the room where they don't fit.

    Args:
        available: bytes that are free.
        members: of the population.
        member: bytes of a member's step.
        each: bytes of a member's buffers of one step.
    """
    spare = (available - members * member) // 2
    if members * (member + each) > available:
        # Groups are trained one after another; fewer members then share these buffers.
        spare = available // 4
    return int(np.clip(min(spare, _ENOUGH) // (members * each), 1, None))


def _size(size: float) -> str:
    """Bytes in a unit that reads well."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"
