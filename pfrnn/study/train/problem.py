"""What a block trains on: data and settings."""

from __future__ import annotations

from typing import NamedTuple

from pfrnn.study.config import Config
from pfrnn.study.data.base import PreparedCard, Split
from pfrnn.study.train.batches import DeviceSplit
from pfrnn.study.train.streaming import StreamedSplit


class Problem(NamedTuple):
    """Everything of a block but its members.

    Attributes:
        config: the data set's configuration.
        card: the data set's card.
        train: training split, on the device or streamed to it.
        validation: validation split, likewise.
        host_validation: the same on the host, for the metrics.
        batch_size: sequences a step.
        halving: whether successive halving drops members; never in a final.
    """

    config: Config
    card: PreparedCard
    train: DeviceSplit | StreamedSplit
    validation: DeviceSplit | StreamedSplit
    host_validation: Split
    batch_size: int
    halving: bool = False
